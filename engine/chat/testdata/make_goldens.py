#!/usr/bin/env python3
"""Renders chat templates by the reference, Hugging Face transformers, for the goldens of this folder.

    pip install transformers==5.17.0 jinja2==3.1.6
    python make_goldens.py [FOLDER]

Read: templates/*.jinja (their origins and licences are in templates/README.md), cases.json (conversations), features.json
(small templates, each for a few constructs of the language). Written: chat.golden.json.gz and features.golden.json. With
FOLDER, a folder of other templates (*.jinja), also published.golden.json: hashes alone, since those templates are not part
of this project; the test renders them where EXACTA_TEMPLATES names such a folder. The clock stands at 2026-07-05 09:08:07.
"""

import datetime
import gzip
import hashlib
import json
import pathlib
import platform
import sys

import jinja2
import transformers
from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).parent
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 7, 5, 9, 8, 7)


chat_template_utils.datetime = Clock


def render(source, case):
    """The text, or what kind of error there was."""
    case = {k: v for k, v in case.items() if k != "name"}
    try:
        out, _ = chat_template_utils.render_jinja_template(
            conversations=[case.pop("messages")], chat_template=source, **{**TOKENS, **case}
        )
        return {"text": out[0]}
    except jinja2.exceptions.TemplateSyntaxError as e:
        return {"error": "syntax", "message": str(e)}
    except jinja2.exceptions.TemplateError as e:
        raised = type(e) is jinja2.exceptions.TemplateError
        return {"error": "raised" if raised else "other", "message": str(e)}
    except Exception as e:
        return {"error": "other", "message": f"{type(e).__name__}: {e}"}


def main():
    made_by = {"transformers": transformers.__version__, "jinja2": jinja2.__version__, "python": platform.python_version()}
    cases = json.loads((HERE / "cases.json").read_text())
    templates = {p.stem: p.read_text() for p in sorted((HERE / "templates").glob("*.jinja"))}
    out = {"made_by": made_by, "templates": {n: {c["name"]: render(s, c) for c in cases} for n, s in templates.items()}}
    text = json.dumps(out, ensure_ascii=True, separators=(",", ":")).encode()
    (HERE / "chat.golden.json.gz").write_bytes(gzip.compress(text, mtime=0))
    features = json.loads((HERE / "features.json").read_text())
    results = [render(f["t"], {"messages": [], **f.get("v", {})}) for f in features]
    (HERE / "features.golden.json").write_text(json.dumps({"made_by": made_by, "results": results}, indent=0) + "\n")
    for name, rows in out["templates"].items():
        print(name, {k: len([1 for r in rows.values() if r.get("error") == k]) for k in (None, "raised", "other", "syntax")})
    if len(sys.argv) > 1:
        published = {}
        for path in sorted(pathlib.Path(sys.argv[1]).glob("*.jinja")):
            source = path.read_text()
            rows = {c["name"]: render(source, c) for c in cases}
            published[path.name] = {
                "file": hashlib.sha256(path.read_bytes()).hexdigest(),
                "results": {k: hashlib.sha256(r["text"].encode()).hexdigest()[:16] if "text" in r else r["error"] for k, r in rows.items()},
            }
        (HERE / "published.golden.json").write_text(json.dumps({"made_by": made_by, "templates": published}, indent=0) + "\n")


if __name__ == "__main__":
    main()
