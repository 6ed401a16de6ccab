"""The one config of a run: what users write in TOML, on the command line or in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
    model_validator,
)

__all__ = ["SECTIONS", "RolloutConfig"]

SECTIONS = {
    "backend": "What runs",
    "executor": "Where it runs",
    "dtype": "How the engine runs",
    "startup_timeout_s": "What is waited for, and how long",
    "weight_update_host": "New weights",
    "backend_options": "The backend's own",
}
"""Titles of the parts of the config, by the first field of each; documents are laid out by them."""

_BATCH_BY_CONTEXT = ((4096, 1024), (8192, 512))
_BATCH_ABOVE = 128


class RolloutConfig(BaseModel):
    """Everything that decides a run. Frozen: build it once and pass it on.

    Times are in seconds (names end in ``_s``), sizes in tokens, ports in TCP port numbers.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        protected_namespaces=(),
        validate_default=True,
        allow_inf_nan=False,
    )

    backend: str = "transformers"
    """Name of the installed backend that serves the model (``rollout plugins`` lists them)."""

    model_path: str = Field(min_length=1)
    """Folder of the checkpoint, or its id on the Hugging Face hub."""

    model_name: str | None = None
    """Name under which the engines serve the model. Unset: the checkpoint's own name."""

    tokenizer_path: str | None = None
    """Folder or hub id of the tokenizer. Unset: the model path."""

    trust_remote_code: bool = False
    """Run Python code that comes with the checkpoint. Only for checkpoints that you trust."""

    system_prompt: str | None = None
    """Put before chat messages that do not start with a system message."""

    extensions: tuple[str, ...] = ()
    """Installed extensions to use, by name (``rollout plugins`` lists them)."""

    executor: Literal["local"] = "local"
    """How server processes are started: ``local`` runs them on this machine."""

    device: Literal["auto", "cpu", "gpu", "npu"] = "auto"
    """Kind of accelerator. ``auto`` is ``gpu`` where ``gpus`` is above 0, else ``cpu``."""

    gpus: int = Field(default=0, ge=0)
    """Accelerators to use in all."""

    gpus_per_node: int = Field(default=8, ge=1)
    """Accelerators of one node: consecutive ranks of this many share a machine."""

    engines: int | None = Field(default=None, ge=1)
    """Engines to start. Unset: as many as the accelerators hold; 1 on CPU."""

    tensor_parallel: int = Field(default=1, ge=1)
    """Accelerators that hold one copy of the weights together."""

    data_parallel: int = Field(default=1, ge=1)
    """Copies of the weights inside one engine."""

    expert_parallel: int = Field(default=1, ge=1)
    """Accelerators over which the experts of a mixture-of-experts model are spread."""

    cross_node_communication: bool = False
    """Allow an engine to span nodes."""

    host: str = "127.0.0.1"
    """Address that the servers listen on. Beyond loopback, set API keys too."""

    port_range: tuple[int, int] = (20000, 32000)
    """First and last TCP port that may be leased for servers and rendezvous."""

    env: dict[str, Annotated[str, Field(coerce_numbers_to_str=True)]] = Field(default_factory=dict)
    """Environment variables for the server processes, such as ``OMP_NUM_THREADS``."""

    log_dir: Path | None = None
    """Folder for the servers' logs. Unset: the run's output folder, or a temporary one."""

    api_keys: tuple[SecretStr, ...] = ()
    """Keys that the servers accept; clients send the first. Never logged."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Data type of the weights. ``auto`` is float32 on CPU, else the checkpoint's own."""

    memory_fraction: float = Field(default=0.85, gt=0.0, le=1.0)
    """Fraction of an accelerator's memory that the engine may take, weights and K/V cache together."""

    random_seed: int = Field(default=1024, ge=0, lt=2**63)
    """Seed of the engines. Requests of a run with ``--seed`` have seeds of their own."""

    context_length: int | None = Field(default=None, ge=1)
    """Longest prompt and response together, in tokens. Unset: what the model allows."""

    max_batch_size: int | None = Field(default=None, ge=1)
    """Requests that one engine runs at once. Unset: 1024 up to a context of 4096 tokens, 512 up to 8192, else 128."""

    chunked_prefill: bool = False
    """Cut long prompts into chunks, so that running requests go on between them."""

    chunked_prefill_size: int = Field(default=128, ge=1)
    """Tokens of one chunk."""

    max_prefill_tokens: int | None = Field(default=None, ge=1)
    """Prompt tokens computed in one step. Unset: the engine's own choice."""

    skip_load_weights: bool = False
    """Start with random weights, because the trainer sends the real ones."""

    routed_experts: bool = False
    """Allow requests to ask for the experts that each token was routed to."""

    router_groups: int | None = Field(default=None, ge=1)
    """Groups of the expert router, for models with a grouped router."""

    float8: bool = False
    """Quantize the weights to 8-bit floats."""

    fp32_lm_head: bool = False
    """Compute the LM head in float32."""

    partial_rollout: bool = True
    """Continue an aborted sample from the tokens it has. Off: it is drawn again from its prompt."""

    max_staleness: int | None = Field(default=None, ge=0)
    """Weight versions that a sample's oldest token may be behind; an older sample is ``expired``. Unset: any number."""

    startup_timeout_s: float = Field(default=600.0, gt=0)
    """Seconds until every engine is ready; later than that the run fails with the server's log."""

    shutdown_timeout_s: float = Field(default=10.0, gt=0)
    """Seconds that a server has to end by itself before it is killed."""

    control_timeout_s: float = Field(default=60.0, gt=0)
    """Seconds that an engine has to answer one control call, such as a pause or an abort."""

    client_lease_s: float = Field(default=10.0, gt=0)
    """Seconds without a sign of life of a client, after which a pause no longer waits for it."""

    trainer_lease_s: float = Field(default=30.0, gt=0)
    """Seconds without a sign of life of a trainer in another process, after which its pause ends."""

    lost_trainer: Literal["resume", "stay_paused"] = "resume"
    """What follows when a trainer in another process is lost while it holds the pause: generation goes on, or stays
    paused until another trainer continues it."""

    rollout_timeout_s: float = Field(default=1200.0, gt=0)
    """Seconds without any progress of its engine after which a request is sent elsewhere. No limit on long samples."""

    session_timeout_s: float = Field(default=1200.0, gt=0)
    """Seconds without any request after which it is forgotten which engine a session was on."""

    max_retries_per_sample: int = Field(default=2, ge=0)
    """Times a sample is sent again after an engine's fault."""

    max_retries_per_worker: int | None = Field(default=None, ge=1)
    """Faults in a row after which an engine gets no more requests. Unset: ``health_check_failure_threshold``."""

    health_check_interval_s: float = Field(default=30.0, gt=0)
    """Seconds between two health checks of an engine."""

    health_check_timeout_s: float = Field(default=15.0, gt=0)
    """Seconds that an engine has to answer one health check."""

    health_check_failure_threshold: int = Field(default=3, ge=1)
    """Failed checks in a row after which an engine gets no more requests."""

    weight_update_host: str | None = None
    """Address of the trainer's rank 0, for updates over a distributed group. Unset: this machine's."""

    weight_update_port: int | None = Field(default=None, ge=1, le=65535)
    """Port of the trainer's rank 0, for updates over a distributed group. Unset: a free one."""

    backend_options: SerializeAsAny[BaseModel] | dict[str, Any] = Field(
        default_factory=dict, union_mode="left_to_right"
    )
    """Options of the chosen backend; ``rollout config init --backend NAME`` lists them."""

    @field_validator("backend_options", mode="plain")
    @classmethod
    def _keep_options(cls, value: Any) -> Any:
        # The plugin's own model validates the table when the plugin is loaded.
        if isinstance(value, BaseModel | dict):
            return value
        raise ValueError(f"expected a table of options, got {type(value).__name__}")

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_bool_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        # Pydantic reads true as 1.
        wanted = cls.model_fields[info.field_name].annotation if info.field_name else bool
        if isinstance(value, bool) and wanted is not bool:
            raise ValueError(f"{info.field_name} is {str(value).lower()}, but it is not a yes-or-no setting")
        return value

    @field_validator("env")
    @classmethod
    def _refuse_settings_as_env(cls, value: dict[str, str]) -> dict[str, str]:
        # In TOML everything below a table header belongs to the table.
        if strayed := sorted(value.keys() & cls.model_fields.keys()):
            raise ValueError(f"env has {', '.join(strayed)}: a setting, not a variable; move it above [env]")
        return value

    @field_validator("port_range")
    @classmethod
    def _check_ports(cls, value: tuple[int, int]) -> tuple[int, int]:
        first, last = value
        if not 1024 <= first <= last <= 65535:
            raise ValueError(f"expected 1024 <= first <= last <= 65535, got {first} and {last}")
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.device == "cpu" and self.gpus:
            raise ValueError(f"device is cpu, but gpus is {self.gpus}; drop one of them")
        if self.device in ("gpu", "npu") and not self.gpus:
            raise ValueError(f"device is {self.device}, but gpus is 0; say how many to use")
        return self

    @property
    def accelerator(self) -> Literal["cpu", "gpu", "npu"]:
        """The device, with ``auto`` resolved."""
        if self.device == "auto":
            return "gpu" if self.gpus else "cpu"
        return self.device

    @property
    def ranks_per_engine(self) -> int:
        """Accelerators of one engine."""
        return max(self.tensor_parallel * self.data_parallel, self.expert_parallel)

    @property
    def name(self) -> str:
        """The model name that requests and results carry."""
        return self.model_name or Path(self.model_path).name or Path(self.model_path).resolve().name

    @property
    def tokenizer(self) -> str:
        """The tokenizer path that is used."""
        return self.tokenizer_path or self.model_path

    def batch_size_for(self, context_length: int) -> int:
        """Requests that one engine runs at once, for a model with this context length in tokens."""
        if self.max_batch_size is not None:
            return self.max_batch_size
        return next((size for limit, size in _BATCH_BY_CONTEXT if context_length <= limit), _BATCH_ABOVE)
