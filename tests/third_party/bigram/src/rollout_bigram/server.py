"""A language model over bytes: how likely each byte is after the one before it, counted in corpus.txt."""

import argparse
import itertools
import json
import math
import random
from pathlib import Path

from aiohttp import web

END, VOCABULARY = 10, 256  # a line break ends a response


def log_probabilities(corpus: bytes) -> list[list[float]]:
    """Natural logs, one row of 256 for each preceding byte; every count starts at a tenth."""
    counts = [[0.1] * VOCABULARY for _ in range(VOCABULARY)]
    for one, following in itertools.pairwise(corpus):
        counts[one][following] += 1
    return [[math.log(count / sum(row)) for count in row] for row in counts]


def kept(row: list[float], temperature: float, top_k: int, top_p: float) -> dict[int, float]:
    """The tokens that may be drawn, with their weights."""
    order = sorted(range(VOCABULARY), key=lambda token: -row[token])[: top_k or VOCABULARY]
    weights = {token: math.exp((row[token] - row[order[0]]) / temperature) for token in order}
    total, seen, chosen = sum(weights.values()), 0.0, {}
    for token in order:
        chosen[token] = weights[token]
        seen += weights[token] / total
        if seen >= top_p:
            break
    return chosen


def generate(table: list[list[float]], context: int, body: dict) -> dict:
    """Draw one response; the log-probabilities are the model's own, whatever was filtered."""
    last, tokens, logprobs, room = body["prompt_ids"][-1], [], [], context - len(body["prompt_ids"])
    if room <= 0:
        raise ValueError(f"the prompt leaves no room in a context of {context}")
    budget = body["max_tokens"] or room
    reason = "length" if budget <= room else "context_length"
    while len(tokens) < min(budget, room):
        row = table[last]
        if body["temperature"] == 0:
            last = row.index(max(row))
        else:
            weights = kept(row, body["temperature"], body["top_k"], body["top_p"])
            last = random.choices(list(weights), list(weights.values()))[0]
        tokens.append(last)
        logprobs.append(row[last])
        if last == END:
            reason = "stop"
            break
    shown = tokens[:-1] if reason == "stop" and body["skip_special_tokens"] else tokens
    text = bytes(shown).decode(errors="replace")
    return {"id": body["id"], "tokens": tokens, "logprobs": logprobs, "text": text, "reason": reason}


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("context", type=int)
    options = parser.parse_args()
    table = log_probabilities((options.model / "corpus.txt").read_bytes())

    async def answer(request: web.Request) -> web.Response:
        try:
            reply, status = generate(table, options.context, json.loads(await request.read())), 200
        except (ValueError, KeyError, TypeError, IndexError) as error:
            reply, status = {"error": f"{type(error).__name__}: {error}"}, 400
        return web.json_response(reply, status=status)

    async def health(request: web.Request) -> web.Response:
        return web.json_response({"alive": True})

    app = web.Application()
    app.add_routes([web.post("/generate", answer), web.get("/health", health)])
    web.run_app(app, host=options.host, port=options.port, print=None)


if __name__ == "__main__":
    main()
