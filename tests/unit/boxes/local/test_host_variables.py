"""Which of the host's environment variables reach a local box."""

from __future__ import annotations

from pathlib import Path

import pytest

from watchtest.boxes.local.host_variables import box_environ, files_named

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "secret",
    "GITHUB_TOKEN": "secret",
    "UV_PUBLISH_TOKEN": "secret",
    "UV_INDEX_HOUSE_PASSWORD": "secret",
    "PIP_CLIENT_CERT": "secret",
    "SSH_AUTH_SOCK": "secret",
    "DOCKER_HOST": "secret",
    "DBUS_SESSION_BUS_ADDRESS": "secret",
    "PYTHONPATH": "secret",
    "XDG_RUNTIME_DIR": "secret",
    "CARGO_REGISTRY_TOKEN": "secret",
    "NPM_TOKEN": "secret",
    "NODE_AUTH_TOKEN": "secret",
    "HOME": "/secret",
}


@pytest.mark.parametrize("is_sandboxed", [True, False])
def test_secrets_and_sockets_stay_out(is_sandboxed: bool) -> None:
    kept = box_environ({"PATH": "/bin", **SECRETS}, certificates="auto", is_sandboxed=is_sandboxed)
    assert kept == {"PATH": "/bin"}


def test_language_clock_terminal_and_the_way_to_the_index_are_carried() -> None:
    wanted = {
        "PATH": "/bin",
        "LANG": "de_DE.UTF-8",
        "LC_TIME": "C",
        "TZ": "UTC",
        "TERM": "xterm",
        "PIP_INDEX_URL": "https://index.example/simple",
        "UV_DEFAULT_INDEX": "https://index.example/simple",
        "SSL_CERT_FILE": "/ca.pem",
    }
    assert box_environ(wanted, certificates="auto", is_sandboxed=True) == wanted


def test_the_folder_for_temporary_files_is_carried_only_without_a_sandbox() -> None:
    environ = {"PATH": "/bin", "TMPDIR": "/big/tmp"}
    assert box_environ(environ, certificates="auto", is_sandboxed=False)["TMPDIR"] == "/big/tmp"
    assert "TMPDIR" not in box_environ(environ, certificates="auto", is_sandboxed=True)


def test_an_active_virtualenv_is_taken_off_the_path() -> None:
    environ = {"PATH": "/venv/bin:/usr/bin:/venv-2/bin", "VIRTUAL_ENV": "/venv"}
    assert box_environ(environ, certificates="auto", is_sandboxed=True) == {"PATH": "/usr/bin:/venv-2/bin"}


def test_certificates_can_be_left_out_or_named(tmp_path: Path) -> None:
    environ = {"PATH": "/bin", "SSL_CERT_FILE": "/ca.pem", "SSL_CERT_DIR": "/certs"}
    assert box_environ(environ, certificates="off", is_sandboxed=True) == {"PATH": "/bin"}
    named = box_environ(environ, certificates=str(tmp_path / "own.pem"), is_sandboxed=True)
    assert named["SSL_CERT_FILE"] == named["PIP_CERT"] == str(tmp_path / "own.pem")
    assert "SSL_CERT_DIR" not in named


@pytest.mark.parametrize("place", [".config/pip/pip.conf", ".pip/pip.conf"])
def test_the_users_pip_settings_are_named_because_the_box_has_another_home(tmp_path: Path, place: str) -> None:
    file = tmp_path / place
    file.parent.mkdir(parents=True)
    file.write_text("[global]\n")
    environ = {"PATH": "/bin", "HOME": str(tmp_path)}
    assert box_environ(environ, certificates="auto", is_sandboxed=True)["PIP_CONFIG_FILE"] == str(file)
    given = box_environ({**environ, "PIP_CONFIG_FILE": "/given"}, certificates="auto", is_sandboxed=True)
    assert given["PIP_CONFIG_FILE"] == "/given"


def test_files_that_variables_point_at_are_found() -> None:
    variables = {"SSL_CERT_FILE": "/ca.pem", "PIP_FIND_LINKS": "/wheels https://index.example/more", "LANG": "/no"}
    assert files_named(variables) == ("/ca.pem", "/wheels")


def test_a_toolchain_of_the_host_is_found_from_another_home(tmp_path: Path) -> None:
    rust, node, go = tmp_path / ".rustup", tmp_path / "node", tmp_path / "go"
    for folder in (rust, node / "bin", node / "lib" / "node_modules", go / "bin", go / "src" / "runtime"):
        folder.mkdir(parents=True)
    (go / "bin" / "go").touch()
    environ = {"HOME": str(tmp_path), "PATH": f"{node}/bin:{go}/bin", "GOPROXY": "https://index.example"}
    kept = box_environ(environ, certificates="auto", is_sandboxed=True)
    assert kept == {"PATH": environ["PATH"], "GOPROXY": "https://index.example", "RUSTUP_HOME": str(rust)}
    assert files_named(kept) == (str(rust), str(node / "lib" / "node_modules"), str(go))
    elsewhere = box_environ({**environ, "RUSTUP_HOME": str(go)}, certificates="auto", is_sandboxed=True)
    assert elsewhere["RUSTUP_HOME"] == str(go)


def test_caches_of_builds_are_shared_only_without_a_sandbox() -> None:
    environ = {"PATH": "/bin", "GOCACHE": "/big/cache"}
    assert box_environ(environ, certificates="auto", is_sandboxed=False)["GOCACHE"] == "/big/cache"
    assert "GOCACHE" not in box_environ(environ, certificates="auto", is_sandboxed=True)


def test_of_the_users_npm_settings_the_registry_is_carried_and_no_token(tmp_path: Path) -> None:
    (tmp_path / ".npmrc").write_text("//index.example/:_authToken=secret\nregistry = https://index.example/npm\n")
    environ = {"PATH": "/bin", "HOME": str(tmp_path)}
    kept = box_environ(environ, certificates="auto", is_sandboxed=True)
    assert kept == {"PATH": "/bin", "npm_config_registry": "https://index.example/npm"}
    given = box_environ({**environ, "NPM_CONFIG_REGISTRY": "https://given"}, certificates="auto", is_sandboxed=True)
    assert given == {"PATH": "/bin", "NPM_CONFIG_REGISTRY": "https://given"}
