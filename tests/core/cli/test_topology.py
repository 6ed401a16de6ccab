"""``rollout topology``"""

import json


def rows(stdout: str) -> list[list[str]]:
    return [line.split() for line in stdout.splitlines() if line.strip().startswith("engine-")]


def test_every_accelerator_of_the_cluster_is_drawn_with_its_node(cli):
    result = cli("topology", "--gpus", "16", "--gpus-per-node", "8")
    assert result.exit_code == 0
    assert "16 engines on 16 GPUs, 2 nodes" in result.stdout
    table = rows(result.stdout)
    assert [row[0] for row in table] == [f"engine-{i}" for i in range(16)]
    assert [row[1] for row in table] == ["0"] * 8 + ["1"] * 8


def test_engines_on_cpu_are_drawn_too(cli):
    result = cli("topology", "--engines", "2")
    assert "2 engines on 2 CPU ranks, 1 node" in result.stdout


def test_json_has_engines_processes_and_who_takes_requests(cli):
    drawn = json.loads(cli("topology", "--gpus", "2", "--json").stdout)
    assert drawn["cluster"] == {"ranks": 2, "ranks_per_node": 8, "accelerator": "gpu", "nodes": 1}
    assert [engine["name"] for engine in drawn["engines"]] == ["engine-0", "engine-1"]
    process = drawn["engines"][1]["processes"][0]
    assert (process["bundles"], process["update_ranks"], process["accepts_requests"]) == ([1], [1], True)


def test_values_come_from_files_and_flags(cli, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("gpus = 4\ngpus_per_node = 2\n")
    drawn = json.loads(cli("topology", "-c", str(path), "--gpus", "6", "--json").stdout)
    assert drawn["cluster"]["ranks"] == 6
    assert drawn["cluster"]["ranks_per_node"] == 2


def test_what_the_backend_cannot_do_is_said(cli):
    result = cli("topology", "--gpus", "4", "--tensor-parallel", "2")
    assert result.exit_code == 2
    assert "does not offer tensor_parallel" in result.stderr


def test_more_engines_than_accelerators_are_refused(cli):
    result = cli("topology", "--gpus", "2", "--engines", "3")
    assert result.exit_code == 2
    assert "gpus is 2" in result.stderr
