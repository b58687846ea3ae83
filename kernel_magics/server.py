"""The part of Cutaway in Jupyter's server: copies the lessons when the launcher's card asks for them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado.web import HTTPError, authenticated

from kernel_magics.command.lessons import copy_lessons

FOLDER = "cutaway-lessons"
FIRST = "00_tour.ipynb"


class LessonsHandler(APIHandler):
    """``POST /cutaway/lessons`` copies the lessons to a folder below the server's; files that are there stay."""

    @authenticated
    async def post(self) -> None:
        root = getattr(self.contents_manager, "root_dir", "")
        if not root:
            raise HTTPError(
                501, "the notebooks are in no folder of the server; run `cutaway lessons DIR` in a terminal"
            )
        try:
            await asyncio.to_thread(copy_lessons, Path(root).expanduser() / FOLDER)
        except OSError as error:
            raise HTTPError(500, str(error)) from None
        self.finish({"folder": FOLDER, "notebook": f"{FOLDER}/{FIRST}"})


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "kernel_magics.server"}]


def _load_jupyter_server_extension(server: Any) -> None:
    url = url_path_join(server.web_app.settings["base_url"], "cutaway", "lessons")
    server.web_app.add_handlers(".*", [(url, LessonsHandler)])
