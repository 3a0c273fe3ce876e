"""Processes that begin with torch loaded: importing it takes most of the time of a test that starts some."""

import multiprocessing
import sys
from multiprocessing.process import BaseProcess

__all__ = ["start"]


def start(script: str, **names: object) -> BaseProcess:
    """Run a script, which knows these names, in a copy of a process that has imported the library, where there is one.

    Its environment is that of the first of them: what a script needs of it, it sets itself.
    """
    has_server = sys.platform == "linux"
    context = multiprocessing.get_context("forkserver" if has_server else "spawn")
    if has_server:
        # As the library does, whose server it shares, and what torch's optimisers import when they first step.
        context.set_forkserver_preload(["calibrant.scale.jobs", "torch._dynamo"])
    process = context.Process(target=exec, args=(script, names))
    process.start()
    return process
