"""Reads records and logs by their paths."""

from __future__ import annotations

import json
from pathlib import Path

from compiler_core.records import Record, RecordError
from kernel_magics.command.text import Progress


def read_records(path: str) -> list[Record]:
    """Reads what is at `path`.

    Args:
        path: a record (``.json``), a notebook with compiled cells (``.ipynb``) or one of its records
            (``notebook.ipynb#Cell In[3]``), a rank's file (``.jsonl``), a log that
            PyTorch wrote under ``TORCH_TRACE``, or a folder of logs.  Damaged entries of a log are left out, with a
            note.

    Raises:
        RecordError: there is nothing that can be read; the message says where and why.
    """
    file, of_notebook, title = path.partition(".ipynb#")
    if of_notebook:
        return [_titled(f"{file}.ipynb", title)]
    target = Path(path).expanduser()
    if not target.exists():
        raise RecordError(f"{path}: there is no such file or folder")
    if target.is_file() and target.suffix == ".json":
        try:
            record = Record.load(target)
        except RecordError as error:
            raise RecordError(f"{path}: {error}") from None
        record.title = record.title or target.stem
        return [record]
    if target.is_file() and target.suffix == ".ipynb":
        return _of_notebook(path, target)
    if target.is_file() and target.suffix == ".jsonl":
        from compiler_core.tools.ranks.journal import read_journal

        return [read_journal(target)]
    if target.is_dir() and not any([*target.glob("*.log"), *target.glob("*.log.gz")]):
        raise RecordError(f"{path}: there is no log (*.log, *.log.gz); TORCH_TRACE={path} has PyTorch write some")
    from compiler_core.tools.stock.trace_logs import read_logs

    progress = Progress("reading", 1e6, " MB")
    try:
        return read_logs(target, progress, strict=False)
    finally:
        progress.close()


def _titled(path: str, title: str) -> Record:
    """Returns the record of a notebook with this title, the last if there are several."""
    records = {record.title: record for record in read_records(path)}
    if title not in records:
        raise RecordError(f"{path}: there is no record {title!r}; there are {', '.join(records)}")
    return records[title]


def _of_notebook(path: str, file: Path) -> list[Record]:
    """Reads the records among the outputs of a notebook's cells."""
    from kernel_magics.display.explorer import MIME
    from kernel_magics.display.packing import unpack

    try:
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        outputs = [output.get("data", {}) for cell in cells for output in cell.get("outputs", ())]
        records = [unpack(data[MIME]) for data in outputs if MIME in data]
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from None
    except (ValueError, KeyError, AttributeError, TypeError):
        raise RecordError(f"{path}: it is no notebook") from None
    if not records:
        raise RecordError(f"{path}: no output has a record; run its cells with %%compile, and save it")
    return records


def read_one(path: str) -> Record:
    """Reads what is at `path`, which must be one record; RecordError otherwise."""
    records = read_records(path)
    if len(records) != 1:
        titles = ", ".join(record.title for record in records[:3])
        raise RecordError(f"{path}: one record is needed here, and this has {len(records)}: {titles} ...")
    return records[0]
