"""The answers and events of the API, as the OpenAPI document describes them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from watchtest.control.api.request_models import ApiModel, RunId
from watchtest.core.model import Lane, Outcome, ProvisionalCode, RunState, Trigger, Verdict
from watchtest.views.mood import Colour
from watchtest.views.status.status_document import Activity

Time = Annotated[
    str,
    Field(
        pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$",
        description="UTC, with milliseconds.",
        json_schema_extra={"format": "date-time"},
    ),
]
Count = Annotated[int, Field(ge=0)]
LineNumber = Annotated[int, Field(ge=1)]


# -- answers ---------------------------------------------------------------------------------------


class RefusedModel(ApiModel):
    """Why a request was refused."""

    code: str = Field(description="A stable identifier of the reason.")
    message: str
    hint: str = Field(description="What to do instead; may be empty.")


class HealthModel(ApiModel):
    """The watcher is running."""

    status: Literal["ok"]
    version: str
    pid: Count
    workspace: str


class LanesModel(ApiModel):
    save: str | None = None
    stage: str | None = None
    commit: str | None = None


class InfoModel(ApiModel):
    """The watcher, its addresses and its limits."""

    version: str
    pid: Count
    workspace: str
    started_at: Time
    python: str
    platform: str
    lanes: LanesModel = Field(description="The policy of each lane; null if the lane is off.")
    socket: str | None = Field(description="The path of the unix socket.")
    url: str | None = Field(description="The URL of the TCP port; null if there is none.")
    token_file: str | None = Field(description="The file that contains the token for the TCP port.")
    limits: dict[str, int]


class SchemasModel(ApiModel):
    """JSON Schemas, draft 2020-12."""

    status: dict[str, Any] = Field(description="The schema of GET /status and of the status file.")
    config: dict[str, Any] = Field(description="The schema of the settings.")


class CountsModel(ApiModel):
    passed: Count
    failed: Count
    error: Count
    skipped: Count
    xfailed: Count
    xpassed: Count


class ProgressModel(ApiModel):
    done: Count
    total: Count | None = Field(description="null if it is not known.")


class ProvisionalModel(ApiModel):
    """The box of a run was not a clean environment of its tree."""

    code: ProvisionalCode
    message: str
    hint: str | None


class RunModel(ApiModel):
    """A run, in its current or final state."""

    id: RunId
    lane: Lane
    trigger: Trigger
    state: RunState
    ended: bool = Field(description="Whether `state` is final.")
    stopping: bool = Field(description="Whether the run was cancelled and is about to end.")
    reason: str | None = Field(description="Why the run ended in this state, or what a queued run is waiting for.")
    successor: str | None = Field(description="The id of the run that replaces this one.")
    provisional: ProvisionalModel | None = Field(description="Why its verdict is provisional; null if it is final.")
    queued_at: Time | None
    ended_at: Time | None
    tree: str | None = Field(description="The git tree id of exactly the code under test.")
    selected: Count | None = Field(description="The number of tests to run; null for all, or if not decided yet.")
    because: str | None = Field(description="Why these tests were selected.")
    counts: CountsModel
    progress: ProgressModel


class RunsModel(ApiModel):
    """A list of runs."""

    runs: list[RunModel] = Field(description="The runs, newest first.")
    next: str | None = Field(description="The value of `before` that returns older runs; null if there are none.")


class PlaceModel(ApiModel):
    file: str
    line: LineNumber


class FailureModel(ApiModel):
    """The fields of a failure in the status file."""

    kind: str
    file: str | None = Field(description="The path of the test's file, relative to the workspace, with slashes.")
    line: LineNumber | None = Field(description="The line of the deepest frame in the test's own file.")
    column: LineNumber | None
    source_line: str | None
    message: str
    crash: PlaceModel | None = Field(description="The deepest frame in the workspace.")
    text: str = Field(description="The end of the failure report.")
    output: str = Field(description="The end of what the test printed.")


class ResultModel(ApiModel):
    number: int = Field(ge=1)
    test: str
    outcome: Outcome
    duration_s: float = Field(ge=0)
    failure: FailureModel | None


class ResultsModel(ApiModel):
    """Results in the order of their arrival; the last result of a test is the one that counts."""

    run: RunId
    state: RunState
    ended: bool = Field(description="Whether the run has ended. If so and `more` is false, there are no more results.")
    reset: bool = Field(description="`after` was not valid for this run: these are its first results, start over.")
    results: list[ResultModel]
    next: Count = Field(description="The value of `after` that returns the following results.")
    more: bool = Field(description="Whether more results are available now.")


class PauseModel(ApiModel):
    paused: bool


class PausedModel(ApiModel):
    """Which lanes are paused."""

    lanes: dict[str, PauseModel]


class RestModel(ApiModel):
    """Whether a lane has a verdict on everything it knows of."""

    lane: Lane
    settled: bool
    waits_for: str | None = Field(description="Why the lane cannot settle without help; null if it can.")


class PolicySetModel(ApiModel):
    """The policy of a lane."""

    lane: Lane
    policy: str = Field(description="The policy in effect.")
    configured: str


class RowModel(ApiModel):
    """A row of the dashboard: styled text at the left and right edges, and a bar between them."""

    left: list[tuple[str, str]] = Field(default=[])
    right: list[tuple[str, str]] = Field(default=[])
    band: str = ""
    bar: float | None = None
    groups: list[list[tuple[str, str]]] = Field(default=[])
    wraps: bool = Field(default=False, description="Whether the left text may continue in empty rows that follow.")


class NoticeModel(ApiModel):
    """A notification that the watcher could show neither on a terminal of its own nor on the desktop."""

    number: Count = Field(description="A number that differs for each notice.")
    kind: str
    title: str
    lines: list[str]
    lane: Lane
    verdict: str
    form: str | None = Field(description="How the user wants to be notified; null for whatever the terminal supports.")


class ScreenModel(ApiModel):
    """The dashboard as the watcher itself would draw it. `watchtest attach` shows it."""

    seq: Count
    lane: Lane
    rows: list[RowModel]
    choices: Count = Field(description="The number of failures that can be chosen.")
    place: PlaceModel | None = Field(description="The location of the chosen failure, or of the first one.")
    paused: bool
    override: str | None = Field(description="The policy that the user set by hand.")
    red: Count
    notice: NoticeModel | None = Field(description="The current notice, for the terminal that shows this screen.")


class OutputModel(ApiModel):
    """The output of failures."""

    text: str = Field(description="The complete output of the failures and of the runner.")


class ExplainedModel(ApiModel):
    """For a test, why it ran or did not run, and what it uses; for a file, the tests that depend on it."""

    model_config = ConfigDict(extra="allow")

    lane: Lane
    kind: Literal["test", "file"]


class CheckedModel(ApiModel):
    """The problems of a config file."""

    valid: bool
    problems: list[str] = Field(description="Exactly the problems that `watchtest config validate FILE` prints.")


# -- events ----------------------------------------------------------------------------------------


class CodeModel(ApiModel):
    source: Literal["worktree", "index", "head"]
    tree: str | None
    head: str | None
    branch: str | None
    dirty: bool | None
    trigger: Trigger | None


class PendingModel(ApiModel):
    changes: Count
    since: Time | None


class ProblemModel(ApiModel):
    code: str
    message: str
    hint: str | None


class StatusEvent(ApiModel):
    """The current status of a lane. Sent when its activity, verdict, pending changes or problem has changed."""

    lane: Lane
    activity: Activity
    verdict: Verdict
    colour: Colour
    doubt: str | None
    verdict_at: Time | None
    provisional: ProvisionalModel | None
    reason: str | None
    run_id: str | None
    code: CodeModel
    pending: PendingModel
    problem: ProblemModel | None
    paused: bool
    waits_for: str | None
    waiting_runs: Count


class ResultEvent(ResultModel):
    """A test of a current run has ended."""

    run: RunId
    lane: Lane


class BoxEvent(ApiModel):
    """The box of a lane, or a service in it, has changed its state."""

    lane: Lane
    box: dict[str, Any] | None = Field(description="The box, as in the status file.")


class ProblemEvent(ApiModel):
    """A problem prevents a verdict, or (null) no longer does."""

    lane: Lane
    problem: ProblemModel | None


class NoteEvent(ApiModel):
    """A message to show."""

    lane: Lane
    text: str


class ReasonEvent(ApiModel):
    """`reset`: events were missed and are no longer kept, so read everything again. `end`: the watcher is stopping."""

    reason: str


EVENTS: dict[str, type[BaseModel]] = {
    "status": StatusEvent,
    "run": RunModel,
    "result": ResultEvent,
    "box": BoxEvent,
    "problem": ProblemEvent,
    "note": NoteEvent,
    "reset": ReasonEvent,
    "end": ReasonEvent,
}
