"""How often a model follows a change of subject: a name is told, then something else is asked (experiment 0007).

usage: python3 subject_change.py PROGRAM MODEL     (the built `fieldfare`; a model directory, or `demo`)
"""
import json
import subprocess
import sys

NAMES = ["Anna", "Tom", "Clara", "Ben", "Maria", "Zoltan", "Priya"]
QUESTIONS = [("What is the capital of Italy?", "Rome"), ("What is the capital of Japan?", "Tokyo"), ("What is 12 + 30?", "42"),
             ("How many legs does a spider have?", "eight"), ("What is my name?", None), ("Which day comes after Monday?", "Tuesday")]


def main():
    program, model = sys.argv[1:]
    right = 0
    for name in NAMES:
        for question, wanted in QUESTIONS:
            said = [("user", f"My name is {name}."), ("assistant", f"Nice to meet you, {name}."), ("user", question)]
            messages = json.dumps([{"role": role, "content": content} for role, content in said])
            command = [program, "chat", "--model", model, "--messages-file", "-", "--quiet", "--temperature", "0"]
            ran = subprocess.run(command, input=messages, capture_output=True, text=True, check=True)
            right += (wanted or name) in ran.stdout
    print(f"{right} of {len(NAMES) * len(QUESTIONS)} right")


if __name__ == "__main__":
    main()
