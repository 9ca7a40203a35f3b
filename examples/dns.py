"""Publish an agent in the DNS and resolve it as a stranger would, with DNSSEC and DANE. All on this machine.

Start: python examples/dns.py          (needs: openssl)

The tutorial docs/tutorial/your-agent-on-dns.md does the same by hand and explains every step.
"""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

DOMAIN = "alice.example.test"
CERTIFICATE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -keyout key.pem -out cert.pem"
    f" -subj /CN={DOMAIN} -addext subjectAltName=DNS:{DOMAIN},IP:127.0.0.1"
)
ALICE = {
    "id": "urn:agent:alice",
    "name": "Alice",
    "description": "Reads invoices and says what is due.",
    "version": "1.0.0",
    "bindings": [{"protocol": "https", "endpoint": f"https://{DOMAIN}/invoke"}],
}


def waypost(*arguments: str) -> str:
    """Run a command to its end."""
    return subprocess.run([sys.executable, "-m", "waypost", *arguments], stdout=-1, text=True, check=True).stdout


def start(stack: ExitStack, *arguments: str) -> str:
    """Start a command that keeps running; its first line says where it listens."""
    process = subprocess.Popen([sys.executable, "-m", "waypost", *arguments], stdout=-1, stderr=-3, text=True)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process.stdout.readline() if process.stdout else ""


def main() -> None:
    with ExitStack() as stack:
        os.chdir(stack.enter_context(tempfile.TemporaryDirectory()))
        subprocess.run(CERTIFICATE.split(), check=True, capture_output=True)
        os.environ.update(WAYPOST_DATA="data", WAYPOST_CA="cert.pem", WAYPOST_FETCH_CA="cert.pem")
        os.environ.update(WAYPOST_ALLOW_CIDRS="127.0.0.0/8")
        # A name server with a signed zone, and a service that uses it.
        nameserver = json.loads(start(stack, "dns", "serve", "example.test", "--port", "0", "-o", "jsonl"))["address"]
        os.environ.update(WAYPOST_RESOLVER=nameserver, WAYPOST_TRUST_ANCHORS="data/dns/trust-anchors")
        ready = start(stack, "serve", "--port", "0", "--tls-cert", "cert.pem", "--tls-key", "key.pem")
        os.environ["WAYPOST_SERVER"] = ready.split()[-1]
        # Publish: register the agent, give it a domain, write the records.
        Path("alice.json").write_text(json.dumps(ALICE))
        waypost("register", "alice.json")
        waypost("host", DOMAIN, "urn:agent:alice")
        waypost("dns", "publish", DOMAIN, "--address", "127.0.0.1", "--nameserver", nameserver)
        # Resolve: nothing is taken on the document's word.
        found = json.loads(waypost("resolve", DOMAIN, "-o", "json"))
        print(f"{found['agent']} is {found['level']}")
        for verdict in found["verdicts"]:
            print(f"  {verdict['state']:12} {verdict['check']}")


if __name__ == "__main__":
    main()
