"""All tasks: each module of this folder exports TASKS, name -> (weight, function of a random generator and a split)."""
import importlib
import pkgutil

TASKS = {}
for _module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
    for _name, _task in importlib.import_module(f"{__name__}.{_module}").TASKS.items():
        assert _name not in TASKS, _name
        TASKS[_name] = _task
