"""A sync that would delete most of the box needs the user's consent, once."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from watchtest.core.model import Lane
from watchtest.errors import SourceShrank
from watchtest.workspace.folder import FOLDER
from watchtest.workspace.shrink_guard import CONSENT_VALID_S, SHRINK_FROM, check_shrinkage, grant_consent, has_consent


@pytest.mark.parametrize(("in_box", "in_source"), [(SHRINK_FROM - 1, 0), (SHRINK_FROM, SHRINK_FROM // 2), (100, 120)])
def test_a_small_box_and_a_small_loss_need_no_consent(tmp_path: Path, in_box: int, in_source: int) -> None:
    check_shrinkage(tmp_path, Lane.SAVE, in_box, in_source)


def test_a_consent_allows_one_loss_and_not_the_next(tmp_path: Path) -> None:
    with pytest.raises(SourceShrank, match="the save lane has 3 paths, its box 100"):
        check_shrinkage(tmp_path, Lane.SAVE, 100, 3)
    grant_consent(tmp_path)
    check_shrinkage(tmp_path, Lane.SAVE, 100, 3)
    with pytest.raises(SourceShrank):
        check_shrinkage(tmp_path, Lane.SAVE, 100, 3)


def test_an_old_consent_counts_no_more(tmp_path: Path) -> None:
    grant_consent(tmp_path)
    past = time.time() - CONSENT_VALID_S - 1
    os.utime(tmp_path / FOLDER / "accept-shrink", (past, past))
    assert not has_consent(tmp_path)
    with pytest.raises(SourceShrank):
        check_shrinkage(tmp_path, Lane.SAVE, 100, 3)
