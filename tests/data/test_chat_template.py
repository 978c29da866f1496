"""Chat templates are rendered as in transformers; hostile ones are refused."""

import pytest

from vestige.data import chat_template
from vestige.data.chat_template import assistant_turn
from vestige.errors import DataError

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe kind<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA = (
    "{{- bos_token }}\n{%- if messages[0]['role'] == 'system' %}\n  {%- set first = 1 %}\n"
    "{%- else %}\n    {%- set first = 0 %}\n{%- endif %}\n"
    "{%- for message in messages %}\n    {%- if loop.index0 < first %}{% continue %}{% endif %}\n"
    "    {{- '[INST] ' + message['content'] | trim + ' [/INST]' }}\n"
    "    {{- {'content': message['content']} | tojson }}\n{%- endfor %}\n"
)
MARKED = (
    "{%- set name = 'both' %}\n{% for message in messages %}\n{{ message['role'] }}: \n"
    "{% generation %}\n{% set name = 'one' %}{{ message['content'] }} \n{% endgeneration %}\n"
    "{{- name }}{% endfor %}\n{%- if add_generation_prompt %}assistant: {%- endif %}"
)


@pytest.mark.slow
@pytest.mark.parametrize("template", [CHATML, LLAMA, MARKED])
@pytest.mark.parametrize("message", ["", "Where do <I> live?\nSay 'it'. ü"])
def test_the_output_equals_that_of_transformers(template, message):
    from transformers.utils.chat_template_utils import render_jinja_template

    [expected], _ = render_jinja_template(
        [[{"role": "user", "content": message}]],
        chat_template=template,
        add_generation_prompt=True,
        bos_token="<s>",
    )
    assert assistant_turn(template, {"bos_token": "<s>"}, message=message) == expected


def test_the_date_is_fixed():
    assert assistant_turn("{{ strftime_now('%d %b %Y') }}", {}, message="") == "26 Jul 2024"


@pytest.mark.slow
@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a' * 10 ** 10 }}",
        "{% for i in range(99999) %}xxxxxxxxxx{% endfor %}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ raise_exception('no such role') }}",
        "{% for",
        "{{ messages[0].content.nothing.at.all }}",
    ],
)
def test_a_hostile_template_is_refused(template):
    with pytest.raises(DataError, match="cannot be rendered"):
        assistant_turn(template, {}, message="secret words")


@pytest.mark.slow
def test_an_endless_template_is_stopped(monkeypatch):
    monkeypatch.setattr(chat_template, "SECONDS", 1)
    endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(DataError, match="takes longer than 1 s"):
        assistant_turn(endless, {}, message="")
