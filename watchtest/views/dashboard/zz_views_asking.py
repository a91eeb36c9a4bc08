"""What a wish of somebody at the dashboard means for the top lane: an event. Pure."""

from __future__ import annotations

from watchtest.core.events import CancelAsked, Event, PauseAsked, PolicyAsked, QuitAsked, ResumeAsked, RunAsked
from watchtest.core.model import All, Policy
from watchtest.core.policy import again, choose, matching
from watchtest.core.state import State
from watchtest.views.dashboard.navigation import Look, Wish


def events_of(wish: Wish, look: Look, state: State, now: float) -> tuple[Event, ...]:
    """None for a wish that is nothing to the watcher."""
    lane = state.top
    name = lane.lane
    match wish:
        case Wish.QUIT:
            return (QuitAsked(name, now),)
        case Wish.ALL:
            return (PolicyAsked(name, now, None), RunAsked(name, now, All(because="asked for by key")))
        case Wish.FAILED:
            if lane.override is Policy.FAILED:
                return (PolicyAsked(name, now, None),)
            run = RunAsked(name, now, choose(Policy.FAILED, lane.knowledge))
            return (PolicyAsked(name, now, Policy.FAILED), *([run] if lane.knowledge.red else []))
        case Wish.RERUN:
            selection = matching(lane, look.filter) if look.filter else again(lane)
            # With a filter that matches nothing there is nothing to run; not everything.
            return (RunAsked(name, now, selection),) if selection or not look.filter else ()
        case Wish.CANCEL | Wish.KILL:
            return (CancelAsked(name, now, is_kill=wish is Wish.KILL),)
        case Wish.PAUSE:
            return (ResumeAsked(name, now) if lane.is_paused else PauseAsked(name, now),)
        case Wish.OUTPUT | Wish.EDIT:
            return ()
