"""The laws of design.md as properties."""

from __future__ import annotations

from hypothesis import settings
from support.lane_machine import LaneMachine

TestTheLawsHold = LaneMachine.TestCase
TestTheLawsHold.settings = settings(max_examples=500, stateful_step_count=40, deadline=None)
