"""Small loops of a coding agent: read, write, list, run, edit; the reply is the next call or the closing sentence.

Held out for test: file names, words and texts (`catalogue_values`), one wording of each table, whose words all
stand in other wordings of this module (`forms`), system texts.
"""
import re

from .. import catalogue, noise
from ..catalogue import thought
from ..catalogue_values import POOLS, SPACED, TEXT, made, pick
from ..dialogue import Dialogue, Reply, assistant, called, result, system, user
from .tools import calls_dialogue

SYSTEM = ["You are a coding agent.", "You are a coding agent. Use the tools to work on the files.", "You are a helpful coding assistant.",
          "You work in a project folder. Use the tools.", "You are an agent that edits files and runs commands.",
          "You are Fieldfare, a coding agent.",
          "You are a programming assistant with access to a shell.", "Work step by step with the tools. Be brief.",
          "You are a software engineer.",
          "You are a command line assistant.", "You help with a small project. Read before you write.",
          "Use the tools; answer in one sentence."]
SYSTEM_TEST = ["You are a software agent. Use the tools to work on the project.", "You are a helpful coding agent."]
TOOLS = ["read_file", "write_file", "list_directory", "run_shell", "edit_file", "search_files"]
LEAD = ["", "", "", "", "please ", "can you ", "could you ", "hey, ", "ok, ", "now ", "I want you to ", "please "]
CREATE = ["create the file {p} with {t} in it", "make a new file {p} that contains {t}", "write the text {t} to the file {p}",
           "I need a file {p} with the text {t}",
    "create {p} with the text {t}", "create a file {p} that says {t}", "make a file called {p} with the content {t}",
          "write {t} to {p}",
          "put {t} into a new file {p}", "save {t} as {p}", "add a file {p} with {t}", "new file {p}: {t}", "store the text {t} in {p}",
          "set up {p} so that it contains {t}"]
READ = ["read the file {p}", "what does the file {p} contain?", "show me the content of {p}", "what is the text of {p}?",
           "read me {p}", "look at {p} and tell me what is in it", "I want to see what {p} says",
    "what is in {p}?", "show me {p}", "what does {p} say?", "read {p} and tell me what it says", "open {p}",
        "what's the content of {p}?",
        "tell me what {p} contains", "look into {p}", "print {p}", "cat {p}", "I wonder what stands in {p}"]
LIST = ["show me what is in the folder {p}", "what is in {p}?", "list the folder {p}", "tell me which files are in {p}",
    "which files are in {p}?", "list the files in {p}", "what's in the folder {p}?", "show me the files of {p}", "ls {p}",
        "what files does {p} have?",
        "look at the folder {p}", "tell me what files lie in {p}"]
RUN = ["please run {c}", "run {c} in the shell", "I want to run {c}", "execute {c} and tell me what it prints", "run the command {c}",
           "try {c} and show me the output",
    "run {c}", "run {c} and tell me the output", "execute {c}", "what does {c} print?", "run `{c}`", "use the shell to run {c}",
       "please try {c}", "start {c} for me"]
LIST_READ = ["look in {p}, find the {s} file and read it", "what does the {s} file in {p} say?",
           "find the file about {s} in {p} and show it",
    "find the {s} file in {p} and tell me what it says", "list {p}, then read the {s} file",
             "look in {p} for the {s} file and show it",
             "there is a {s} file in {p}, what does it say?", "read the file about {s} in {p}",
             "which file in {p} is the {s} one? Show its content",
             "somewhere in {p} is the {s} file, read it to me"]
REPLACE = ["please replace {a} with {b} in the file {p}", "in the file {p} replace {a} with {b}", "change {a} to {b} in {p}",
           "edit the file {p} and change {a} to {b}",
    "in {p} change {a} to {b}", "replace {a} with {b} in {p}", "edit {p}: {a} should be {b}", "rename {a} to {b} in {p}",
           "fix {p}, it says {a} but should say {b}",
           "swap {a} for {b} in {p}", "{p} has {a} in it, make it {b}"]
COPY = ["read {p} and put the text into {q}", "copy the content of {p} to {q}", "write the text of {p} to {q}",
    "copy the text of {p} to {q}", "make a copy of {p} called {q}", "read {p} and write the same text to {q}",
        "put the content of {p} into {q}",
        "{q} should have the same text as {p}", "duplicate the content of {p} in {q}"]
TESTS = ["run the tests: {c}", "do all tests pass with {c}?", "run {c}, are all tests fine?", "see if the tests pass with {c}",
    "run the tests with {c}", "do the tests pass? use {c}", "check the tests ({c})", "run {c} and say whether all tests pass",
         "are the tests fine? {c}",
         "see if {c} is green"]
SEARCH = ["search for {a} in the code", "find where {a} is used", "look for {a} in the project", "in which file is {a} used?",
    "where is {a} used?", "find {a} in the code", "which file has {a}?", "search the project for {a}", "grep for {a}",
          "look up where {a} is", "in what file is {a}?"]
HERE = ["what files are here?", "list the files", "list the files in this folder", "show me the files here", "ls",
        "which files do we have?", "what is in this directory?",
        "look around in the current folder", "list all files", "show the current directory", "what files are in the working directory?"]
# The command, wordings, and what is said when it is done (None: the output is told).
SHELL = [
    ("ls", ["list the files", "what files are here?", "show me the files", "which files are in this folder?", "see which files lie here"],
     None),
    ("ls {d}", ["list the files in {d}", "what is in the folder {d}?", "show me what {d} has in it", "look into the folder {d}",
           "list the folder {d}", "which files are in {d}?"], None),
    ("pwd", ["which folder are we in?", "show the current directory", "where am I?", "what is the working directory?",
             "print the path of this folder"], None),
    ("cat {p}", ["show me {p}", "what is in {p}?", "read {p}", "print the file {p}", "what does {p} say?", "let me see the text of {p}"],
     None),
    ("wc -l {p}", ["count the lines of {p}", "how many lines has {p}?", "tell me the number of lines in {p}",
           "count the lines in {p}", "tell me how many lines {p} has",
                   "get the line count of {p}"], None),
    ("git status", ["what is the git status?", "show the state of the repository", "which files have changed in git?",
                    "see what git says on the changes"], None),
    ("date", ["what is the date?", "show the date", "tell me the date of today", "which date does the machine have?"], None),
    ("whoami", ["which user am I?", "show my user name", "under which name am I logged in?", "tell me the name of the user"], None),
    ("df -h", ["how full is the disk?", "show the free disk space", "how much space is left?", "see how much room the disk has"], None),
    ("rm {p}", ["delete {p}", "remove the file {p}", "get rid of {p}", "please erase {p}", "please delete the file {p}",
           "remove {p}"], "{p} is deleted."),
    ("mkdir {d}", ["create the folder {d}", "make a directory {d}", "I need a folder {d}", "set up the folder {d}",
           "make a folder {d}", "create the directory {d}"],
     "The folder {d} is created."),
    ("cp {p} {q}", ["copy {p} to {q}", "make a copy of {p} named {q}", "duplicate {p} as {q}"], "{p} is copied to {q}."),
    ("mv {p} {q}", ["move {p} to {q}", "rename {p} to {q}", "give {p} the new name {q}"], "{p} is now {q}."),
    ("touch {p}", ["create an empty file {p}", "make the empty file {p}", "add an empty file called {p}"], "{p} is created."),
]
TEST_COMMANDS = ["cargo test", "pytest", "pytest -q", "npm test", "go test ./...", "make test", "python3 -m unittest", "npm run test",
                 "cargo test --workspace"]
DONE = ["ok", "done", "File written.", "Wrote the file.", '{"status": "ok"}', '{"success": true}', "The file has been written.",
        '{"ok":true}', "success"]


class Box:
    """The tools of one dialogue under the names they have there."""

    def __init__(self, rng, needed, others=0.4):
        keys = [k for k in TOOLS if k in needed or rng.random() < others]
        for i in range(len(keys) - 1, 0, -1):
            j = int(rng.random() * (i + 1))
            keys[i], keys[j] = keys[j], keys[i]
        self.made, taken = {}, set()
        for k in keys:
            d = catalogue.declare(rng, catalogue.BY_KEY[k], False, rng.random() < 0.6)
            while d[1].lower() in taken:
                d = catalogue.declare(rng, catalogue.BY_KEY[k], False, rng.random() < 0.6)
            taken.add(d[1].lower())
            self.made[k] = d
        self.tools = [d[0] for d in self.made.values()]

    def call(self, key, **values):
        _, name, _, names, _ = self.made[key]
        return name, {names[k]: v for k, v in values.items()}


def _words(template):
    return set(re.findall(r"[a-z']+", re.sub(r"\{.\}", " ", template).lower()))


def _counts():
    counts = {}
    for t in [t for table in TABLES for t in table]:
        for w in _words(t):
            counts[w] = counts.get(w, 0) + 1
    return counts


def forms(templates):
    """(wordings for training, wordings for test): held out is the longest one that has only words of other wordings, or none."""
    fit = [t for t in templates if len(templates) > 3 and len(_words(t)) > 1 and all(COUNTS[w] > 1 for w in _words(t))]
    held = max(fit, key=lambda t: len(_words(t)), default=None)
    return ([t for t in templates if t != held], [held] if held else templates)


TABLES = [CREATE, READ, LIST, RUN, LIST_READ, REPLACE, COPY, TESTS, SEARCH, HERE] + [t for _, t, _ in SHELL]
COUNTS = _counts()
FORMS = {t[0]: forms(t) for t in TABLES}


def wording(rng, test, templates, **slots):
    t = pick(rng, FORMS[templates[0]][test])
    text = (pick(rng, LEAD) if not t.startswith(("wh", "do ", "are ", "I ", "there", "in what", "{", "somewhere")) else "") + t
    if text[0] != "{" and rng.random() < 0.55:
        text = text[0].upper() + text[1:]
    if text[-1] == "?" and rng.random() < 0.2:
        text = text[:-1]
    text = text.format(**slots)
    return text if test or rng.random() > 0.18 else noise.noisy(rng, text, [v.strip('"') for v in slots.values()])


def _content(rng, test):
    if rng.random() < 0.75:
        return TEXT["text"](rng, test)
    return pick(rng, ("\n", "\n", "\n- ")).join(TEXT["text"](rng, test) for _ in range(2))


def _create(rng, test):
    box = Box(rng, {"write_file"})
    p, t = TEXT["file"](rng, test), TEXT["text"](rng, test)
    text = wording(rng, test, CREATE, p=p, t=f'"{t}"' if rng.random() < 0.7 else t)
    return box, text, [(box.call("write_file", path=p, content=t), pick(rng, DONE))], f"{p} is written.", [p]


def _read(rng, test):
    box = Box(rng, {"read_file"})
    p, t = TEXT["file"](rng, test), _content(rng, test)
    if rng.random() < 0.12:
        e = TEXT["error"](rng, test)
        return box, wording(rng, test, READ, p=p), [(box.call("read_file", path=p),
                                                     f"Error: {e}")], f"The tool reported an error: {e}.", [e]
    return box, wording(rng, test, READ, p=p), [(box.call("read_file", path=p), t)], f"{p} contains: {t}", [t]


def _names(rng, test, count):
    names = {}
    while len(names) < count:
        stem = pick(rng, POOLS["stem"][test]) if rng.random() < 0.5 else made(rng, test)
        names[stem] = f"{stem}.{pick(rng, POOLS['ext'][0])}"
    return names


def _shown_list(rng, names):
    r = rng.random()
    if r < 0.6:
        return "\n".join(names)
    return SPACED(names) if r < 0.75 else SPACED({"files": names}) if r < 0.9 else "  ".join(names)


def _and(names):
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]


def _list(rng, test):
    box = Box(rng, {"list_directory"})
    p, names = TEXT["dir"](rng, test), list(_names(rng, test, 1 + int(rng.random() * 4)).values())
    answer = f"{p} has {len(names)} file{'s' if len(names) > 1 else ''}: {_and(names)}."
    return box, wording(rng, test, LIST, p=p), [(box.call("list_directory", path=p), _shown_list(rng, names))], answer, names


def _list_here(rng, test):
    box = Box(rng, {"list_directory"})
    names = list(_names(rng, test, 1 + int(rng.random() * 4)).values())
    answer = f"This folder has {len(names)} file{'s' if len(names) > 1 else ''}: {_and(names)}."
    return box, wording(rng, test, HERE), [(box.call("list_directory", path="."), _shown_list(rng, names))], answer, names


def _shell_only(rng, test):
    """Only a shell is there: the wish becomes a command."""
    box = Box(rng, {"run_shell"}, 0)
    form, templates, answer = pick(rng, SHELL)
    p, q, d = TEXT["file"](rng, test), TEXT["file"](rng, test), TEXT["dir"](rng, test)
    slots = {"p": p, "q": q, "d": d}
    text, command = wording(rng, test, templates, **slots), form.format(**slots)
    if answer:
        done = answer.format(**slots)
        return box, text, [(box.call("run_shell", command=command), pick(rng,
                                                            ("", "ok", "exit code 0",
                                                            '{"exit_code": 0, "stdout": ""}')))], done, [done[:-1]]
    out = TEXT["text"](rng, test)
    return box, text, [(box.call("run_shell", command=command), out)], f"The output is: {out}", [out]


def _run(rng, test):
    box = Box(rng, {"run_shell"})
    c, out = TEXT["command"](rng, test), TEXT["text"](rng, test)
    shown = out if rng.random() < 0.6 else SPACED({"exit_code": 0, "stdout": out}) if rng.random() < 0.5 else f"exit code 0\n{out}"
    if rng.random() < 0.15:
        e = TEXT["error"](rng, test)
        return box, wording(rng, test, RUN, c=c), [(box.call("run_shell", command=c),
                                                    f"Error: {e}")], f"The tool reported an error: {e}.", [e]
    return box, wording(rng, test, RUN, c=c), [(box.call("run_shell", command=c), shown)], f"The output is: {out}", [out]


def _tests(rng, test):
    box = Box(rng, {"run_shell"})
    c = pick(rng, TEST_COMMANDS)
    good, bad = 1 + int(rng.random() * 200), 0 if rng.random() < 0.5 else 1 + int(rng.random() * 9)
    shown = pick(rng, (f"{good} passed, {bad} failed", f"test result: {'FAILED' if bad else 'ok'}. {good} passed; {bad} failed",
                       f"passed: {good}\nfailed: {bad}",
                       f"{bad} failed, {good} passed in 2.41s", SPACED({"passed": good, "failed": bad})))
    answer = f"{good} tests passed and {bad} failed." if bad else f"All {good} tests passed."
    return box, wording(rng, test, TESTS, c=c), [(box.call("run_shell", command=c),
                                                  shown)], answer, [str(good)] + ([str(bad)] if bad else [])


def _list_read(rng, test):
    box = Box(rng, {"list_directory", "read_file"})
    p, names, t = TEXT["dir"](rng, test), _names(rng, test, 2 + int(rng.random() * 4)), TEXT["text"](rng, test)
    stem = pick(rng, list(names))
    path = f"{p}/{names[stem]}"
    return (box, wording(rng, test, LIST_READ, p=p, s=stem), [(box.call("list_directory", path=p), _shown_list(rng, list(names.values()))),
            (box.call("read_file", path=path), t)], f"{path} contains: {t}", [t])


def _replace(rng, test):
    box = Box(rng, {"read_file", "edit_file"} if rng.random() < 0.5 else {"edit_file"})
    p, a, b = TEXT["file"](rng, test), made(rng, test), made(rng, test)
    steps = [(box.call("edit_file", path=p, old_text=a, new_text=b), pick(rng,
                                                            DONE[:2] + DONE[4:6] + ["1 replacement made", "edited", "replaced"]))]
    return box, wording(rng, test, REPLACE, p=p, a=a, b=b), steps, f"{a} is replaced with {b} in {p}.", [a, b, p]


def _copy(rng, test):
    box = Box(rng, {"read_file", "write_file"})
    p, q, t = TEXT["file"](rng, test), TEXT["file"](rng, test), _content(rng, test)
    steps = [(box.call("read_file", path=p), t), (box.call("write_file", path=q, content=t), pick(rng, DONE))]
    return box, wording(rng, test, COPY, p=p, q=q), steps, f"{q} now has the text of {p}.", [p, q]


def _search(rng, test):
    box = Box(rng, {"search_files"})
    a, hits = made(rng, test), [f"{TEXT['file'](rng, test)}:{1 + int(rng.random() * 300)}" for _ in range(1 + int(rng.random() * 2))]
    a = pick(rng, (a, f"{a}()", f"get_{a}", f"{a}_id", a.capitalize()))
    shown = "\n".join(f"{h}: {pick(rng, ('let x =', 'return', 'call', 'use', 'fn'))} {a}" for h in hits)
    files = [h.rsplit(":", 1) for h in hits]
    answer = f"{a} is in " + " and ".join([f"{f} on line {n}" for f, n in files]) + "."
    must = [f for f, _ in files] + [n for _, n in files]
    return box, wording(rng, test, SEARCH, a=a), [(box.call("search_files", pattern=a), shown)], answer, must


SCENES = [_create, _read, _list, _run, _tests, _list_read, _list_read, _replace, _copy, _search, _list_here, _shell_only]


def agents(rng, split):
    test = split == "test"
    box, text, steps, answer, must = pick(rng, SCENES)(rng, test)
    messages = [system(pick(rng, SYSTEM_TEST if test else SYSTEM))] if rng.random() < 0.5 else []
    if rng.random() < 0.2:
        _earlier(rng, test, box, messages)
    messages.append(user(text))
    think = rng.random() < 0.25
    at = int(rng.random() * (len(steps) + 1))
    for i, (call, output) in enumerate(steps[:at]):
        messages += [called([call], _step_thought(i, call) if think else None), result(output)]
    if at < len(steps):
        return calls_dialogue("agents", messages, box.tools, [steps[at][0]], _step_thought(at, steps[at][0]) if think else None)
    reasoning = "The work is done. I tell the user." if think else None
    return Dialogue("agents", messages, Reply(answer, reasoning), {"kind": "all", "of": must}, box.tools, think)


def _step_thought(i, call):
    return ("First step. " if i == 0 else "Next step. ") + thought(*call)


def _earlier(rng, test, box, messages):
    """An earlier round of the same work."""
    if "read_file" in box.made:
        p, t = TEXT["file"](rng, test), TEXT["text"](rng, test)
        messages += [user(wording(rng, test, READ, p=p)), called([box.call("read_file", path=p)]), result(t),
                     assistant(f"{p} contains: {t}")]
    elif "write_file" in box.made:
        p, t = TEXT["file"](rng, test), TEXT["text"](rng, test)
        messages += [user(wording(rng, test, CREATE, p=p, t=f'"{t}"')), called([box.call("write_file", path=p, content=t)]), result("ok"),
                     assistant(f"{p} is written.")]


TASKS = {"agents": (8, agents)}
