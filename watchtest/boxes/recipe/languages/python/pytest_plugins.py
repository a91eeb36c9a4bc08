"""Well-known plugins of pytest, and by which options, settings, markers and fixtures they are recognized.

A plugin in this table may be installed although no list of the project names it, if the project's own pytest settings
demand it. A fixture or a marker in a test is no such demand.
"""

from __future__ import annotations

from types import MappingProxyType

OPTIONS = MappingProxyType(
    {
        "pytest-cov": ("--cov", "--no-cov"),
        "pytest-xdist": ("-n", "--numprocesses", "--dist", "--maxprocesses", "--tx", "--maxworkers"),
        "pytest-timeout": ("--timeout", "--session-timeout"),
        "pytest-asyncio": ("--asyncio-mode", "--asyncio-debug"),
        "pytest-django": ("--ds", "--dc", "--reuse-db", "--create-db", "--nomigrations", "--no-migrations"),
        "pytest-rerunfailures": ("--reruns", "--only-rerun", "--rerun-except"),
        "pytest-randomly": ("--randomly-seed", "--randomly-dont"),
        "pytest-random-order": ("--random-order",),
        "pytest-benchmark": ("--benchmark",),
        "pytest-codspeed": ("--codspeed",),
        "pytest-mypy": ("--mypy",),
        "pytest-ruff": ("--ruff",),
        "pytest-flake8": ("--flake8",),
        "pytest-black": ("--black",),
        "pytest-html": ("--html", "--self-contained-html"),
        "pytest-json-report": ("--json-report",),
        "pytest-socket": ("--disable-socket", "--allow-hosts", "--allow-unix-socket"),
        "pytest-recording": ("--record-mode", "--block-network"),
        "pytest-doctestplus": ("--doctest-plus", "--doctest-rst", "--doctest-modules-ufunc"),
        "pytest-remotedata": ("--remote-data",),
        "pytest-mpl": ("--mpl",),
        "pytest-repeat": ("--count",),
        "pytest-forked": ("--forked",),
        "pytest-split": ("--splits", "--splitting-algorithm"),
        "pytest-sugar": ("--force-sugar", "--old-summary"),
        "pytest-instafail": ("--instafail",),
        "pytest-playwright": ("--browser", "--headed", "--tracing", "--screenshot"),
        "pytest-memray": ("--memray",),
        "pytest-run-parallel": ("--parallel-threads", "--iterations"),
        "pytest-env": (),
        "pytest-mock": (),
        "pytest-subtests": (),
        "pytest-httpx": (),
        "pytest-httpserver": (),
        "pytest-httpbin": (),
        "pytest-regressions": (),
        "pytest-datadir": (),
        "pytest-freezer": (),
        "pytest-order": (),
        "pytest-trio": (),
        "pytest-tornado": (),
        "pytest-twisted": ("--reactor",),
        "pytest-aiohttp": (),
        "pytest-qt": (),
        "pytest-xvfb": ("--no-xvfb",),
        "pytest-flask": (),
        "pytest-postgresql": (),
        "pytest-examples": ("--update-examples",),
        "pytest-pretty": (),
        "pytest-enabler": (),
        "pytest-checkdocs": ("--checkdocs",),
        "syrupy": ("--snapshot-update", "--snapshot-details"),
        "anyio": (),
        "hypothesis": ("--hypothesis",),
    }
)
"""By distribution: its options, each of which stands for all options that begin with it."""
SETTINGS = MappingProxyType(
    {
        "asyncio_mode": "pytest-asyncio",
        "asyncio_default_fixture_loop_scope": "pytest-asyncio",
        "asyncio_default_test_loop_scope": "pytest-asyncio",
        "anyio_mode": "anyio",
        "trio_mode": "pytest-trio",
        "timeout": "pytest-timeout",
        "timeout_method": "pytest-timeout",
        "timeout_func_only": "pytest-timeout",
        "DJANGO_SETTINGS_MODULE": "pytest-django",
        "DJANGO_CONFIGURATION": "pytest-django",
        "FAIL_INVALID_TEMPLATE_VARS": "pytest-django",
        "django_find_project": "pytest-django",
        "mock_use_standalone_module": "pytest-mock",
        "mock_traceback_monkeypatch": "pytest-mock",
        "env": "pytest-env",
        "env_files": "pytest-dotenv",
        "reruns": "pytest-rerunfailures",
        "reruns_delay": "pytest-rerunfailures",
        "qt_api": "pytest-qt",
        "doctest_plus": "pytest-doctestplus",
        "text_file_format": "pytest-doctestplus",
        "remote_data_strict": "pytest-remotedata",
        "mpl-results-path": "pytest-mpl",
        "randomly_seed": "pytest-randomly",
    }
)
"""Settings of pytest, and the distribution that they belong to."""
MARKERS = MappingProxyType(
    {
        "asyncio": "pytest-asyncio",
        "anyio": "anyio",
        "trio": "pytest-trio",
        "timeout": "pytest-timeout",
        "django_db": "pytest-django",
        "benchmark": "pytest-benchmark",
        "flaky": "pytest-rerunfailures",
        "xdist_group": "pytest-xdist",
        "order": "pytest-order",
        "freeze_time": "pytest-freezer",
        "vcr": "pytest-recording",
        "httpx_mock": "pytest-httpx",
        "no_cover": "pytest-cov",
        "enable_socket": "pytest-socket",
    }
)
FIXTURES = MappingProxyType(
    {
        "mocker": "pytest-mock",
        "benchmark": "pytest-benchmark",
        "anyio_backend": "anyio",
        "anyio_backend_name": "anyio",
        "cov": "pytest-cov",
        "db": "pytest-django",
        "client": "pytest-django",
        "admin_client": "pytest-django",
        "django_user_model": "pytest-django",
        "django_assert_num_queries": "pytest-django",
        "rf": "pytest-django",
        "settings": "pytest-django",
        "live_server": "pytest-django",
        "freezer": "pytest-freezer",
        "time_machine": "time-machine",
        "httpx_mock": "pytest-httpx",
        "httpserver": "pytest-httpserver",
        "httpbin": "pytest-httpbin",
        "requests_mock": "requests-mock",
        "respx_mock": "respx",
        "aioresponses": "aioresponses",
        "snapshot": "syrupy",
        "subtests": "pytest-subtests",
        "qtbot": "pytest-qt",
        "qapp": "pytest-qt",
        "event_loop": "pytest-asyncio",
        "unused_tcp_port": "pytest-asyncio",
        "nursery": "pytest-trio",
        "autojump_clock": "pytest-trio",
        "fs": "pyfakefs",
        "faker": "faker",
        "datadir": "pytest-datadir",
        "shared_datadir": "pytest-datadir",
        "data_regression": "pytest-regressions",
        "file_regression": "pytest-regressions",
        "page": "pytest-playwright",
        "vcr": "pytest-recording",
        "aiohttp_client": "pytest-aiohttp",
        "worker_id": "pytest-xdist",
        "testrun_uid": "pytest-xdist",
        "postgresql": "pytest-postgresql",
        "celery_app": "pytest-celery",
        "mock_aioresponse": "aioresponses",
    }
)
ASYNCHRONOUS = ("pytest-asyncio", "anyio", "pytest-trio", "pytest-tornasync", "pytest-twisted")
"""Plugins that run `async def` tests."""
KNOWN = frozenset(OPTIONS) | frozenset(SETTINGS.values())


def plugin_of_option(option: str) -> str:
    """Return the plugin with this option of the command line, or ""."""
    name = option.partition("=")[0]
    for plugin, options in OPTIONS.items():
        if any(name == one or (one.startswith("--") and name.startswith(f"{one}-")) for one in options):
            return plugin
    return "pytest-xdist" if option.startswith("-n") and not option.startswith("--") else ""
