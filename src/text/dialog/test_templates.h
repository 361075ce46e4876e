// Chat templates of each kind, as short as they can be, for tests.
#pragma once

#include <map>
#include <string>

#include "text/dialog/find_form.h"
#include "text/test_models.h"
#include "text/tokenizer.h"

namespace situ::testing {

// No tools, and a default text of its own.
inline const std::string kPlainTemplate = R"({%- for m in messages -%}
{%- if loop.first and m.role != 'system' %}{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif -%}
{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%})";

// Tools in the system turn; CALLS stands for how calls are written behind the content, RESULT for a result.
inline std::string chat_template(
    const std::string& calls, const std::string& before_answer = "", const std::string& prompt = "",
    const std::string& results =
        R"({{ '<|im_start|>user\n<tool_response>\n' + m.content + '\n</tool_response><|im_end|>\n' }})") {
  return R"({%- if tools %}{{ '<|im_start|>system\n# Tools\n' }}{% for t in tools %}{{ t | tojson }}{% endfor %}{{ '<|im_end|>\n' }}{% endif -%}
{%- for m in messages -%}
{%- if m.role == 'tool' -%})" +
         results + R"({%- elif m.role == 'assistant' -%}
{{ '<|im_start|>assistant\n' }})" +
         before_answer + R"({{ m.content }}{%- if m.tool_calls -%})" + calls + R"({%- endif -%}{{ '<|im_end|>\n' }}
{%- else -%}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }})" +
         prompt + R"({% endif -%})";
}

inline const std::string kHermesCalls =
    R"({%- for c in m.tool_calls %}{{ '\n<tool_call>\n{"name": "' + c.function.name + '", "arguments": ' }}{{ c.function.arguments | tojson }}{{ '}\n</tool_call>' }}{% endfor -%})";
inline const std::string kQwen3Template = chat_template(
    R"({%- for c in m.tool_calls %}{{ '\n<tool_call>\n{"name": "' + c.function.name + '", "arguments": ' }}{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}{{ c.function.arguments | tojson }}{% endif %}{{ '}\n</tool_call>' }}{% endfor -%})",
    R"({%- if m.reasoning_content %}{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{% else %}{{ '<think>\n\n</think>\n\n' }}{% endif -%})",
    R"({%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif -%})");
// One call, without a mark.
inline const std::string kLlama3Template =
    R"({%- if tools %}{{ '<|start_header_id|>user<|end_header_id|>\n\n' }}{% for t in tools %}{{ t | tojson(indent=4) }}{% endfor %}{{ '<|eot_id|>' }}{% endif -%}
{%- for m in messages -%}
{%- if m.role == 'tool' %}{{ '<|start_header_id|>ipython<|end_header_id|>\n\n' }}{{ m.content | tojson }}{{
'<|eot_id|>' }}
{%- elif m.tool_calls -%}
{%- if m.tool_calls | length != 1 %}{{ raise_exception("one call at once") }}{% endif -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "' + m.tool_calls[0].function.name +
'", "parameters": ' }}{{ m.tool_calls[0].function.arguments | tojson }}{{ '}<|eot_id|>' }}
{%- else %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content + '<|eot_id|>' }}{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif -%})";
// A list of calls with ids of nine letters; the text beside them is lost.
inline const std::string kMistralTemplate = R"({{- bos_token }}{%- for m in messages -%}
{%- if m.role == 'user' %}{% if tools and loop.last or tools and loop.index == 1 %}{{ '[AVAILABLE_TOOLS] ' }}{{
tools | tojson }}{{ '[/AVAILABLE_TOOLS]' }}{% endif %}{{ '[INST] ' + m.content + '[/INST]' }}
{%- elif m.role == 'tool' -%}{%- if m.tool_call_id | length != 9 %}{{ raise_exception("ids have 9 letters") }}{%
endif -%}{{ '[TOOL_RESULTS] {"content": ' + m.content + ', "call_id": "' + m.tool_call_id + '"}[/TOOL_RESULTS]' }}
{%- elif m.tool_calls %}{{ '[TOOL_CALLS] [' }}{% for c in m.tool_calls %}{% if c.id | length != 9 %}{{
raise_exception("ids have 9 letters") }}{% endif %}{{ '{"name": "' + c.function.name + '", "arguments": ' }}{{
c.function.arguments | tojson }}{{ ', "id": "' + c.id + '"}' }}{% if not loop.last %}{{ ', ' }}{% endif %}{% endfor
%}{{ ']</s>' }}
{%- elif m.role == 'assistant' %}{{ ' ' + m.content + '</s>' }}
{%- else %}{{ raise_exception("only user, assistant and tool") }}{% endif -%}
{%- endfor -%})";
inline const std::string kNemotronCalls =
    R"({{ '<TOOLCALL>[' }}{% for c in m.tool_calls %}{{ '{"name": "' + c.function.name + '", "arguments": ' }}{{ c.function.arguments | tojson }}{{ '}' }}{% if not loop.last %}{{ ', ' }}{% endif %}{% endfor %}{{ ']</TOOLCALL>' }})";
inline const std::string kApertusCalls =
    R"({{ '<|tools_prefix|>[' }}{% for c in m.tool_calls %}{{ '{"' + c.function.name + '": ' }}{{ c.function.arguments | tojson }}{{ '}' }}{% if not loop.last %}{{ ', ' }}{% endif %}{% endfor %}{{ ']<|tools_suffix|>' }})";
inline const std::string kMiniMax1Calls =
    R"({{ '<tool_calls>\n' }}{% for c in m.tool_calls %}{{ '{"name": "' + c.function.name + '", "arguments": ' }}{{ c.function.arguments | tojson }}{{ '}\n' }}{% endfor %}{{ '</tool_calls>' }})";
inline const std::string kWrappedCalls =
    R"({% for c in m.tool_calls %}{{ '<tool_call>{"type": "function", "function": {"name": "' + c.function.name + '", "arguments": ' }}{{ c.function.arguments | tojson }}{{ '}}</tool_call>' }}{% endfor %})";
inline const std::string kSmall32Calls =
    R"({% for c in m.tool_calls %}{% if c.id | length != 9 %}{{ raise_exception("ids have 9 letters") }}{% endif %}{{ '[TOOL_CALLS]' + c.function.name + '[CALL_ID]' + c.id + '[ARGS]' }}{{ c.function.arguments | tojson }}{% endfor %})";
inline const std::string kDevstralCalls =
    R"({% for c in m.tool_calls %}{{ '[TOOL_CALLS]' + c.function.name + '[ARGS]' }}{{ c.function.arguments | tojson }}{% endfor %})";
// Wants the text of arguments.
inline const std::string kDeepSeekCalls =
    R"({{ '<｜tool▁calls▁begin｜>' }}{% for c in m.tool_calls %}{% if not loop.first %}{{ '\n' }}{% endif %}{{ '<｜tool▁call▁begin｜>function<｜tool▁sep｜>' + c.function.name + '\n```json\n' + c.function.arguments + '\n```<｜tool▁call▁end｜>' }}{% endfor %}{{ '<｜tool▁calls▁end｜>' }})";
inline const std::string kKimiCalls =
    R"({{ '<|tool_calls_section_begin|>' }}{% for c in m.tool_calls %}{{ '<|tool_call_begin|>' + c.id + '<|tool_call_argument_begin|>' }}{{ c.function.arguments | tojson }}{{ '<|tool_call_end|>' }}{% endfor %}{{ '<|tool_calls_section_end|>' }})";
inline const std::string kQwenCoderCalls =
    R"({% for c in m.tool_calls %}{{ '\n<tool_call>\n<function=' + c.function.name + '>\n' }}{% for k, v in c.function.arguments | items %}{{ '<parameter=' + k + '>\n' }}{{ v if v is string else v | tojson }}{{ '\n</parameter>\n' }}{% endfor %}{{ '</function>\n</tool_call>' }}{% endfor %})";
inline const std::string kGlmCalls =
    R"({% for c in m.tool_calls %}{{ '\n<tool_call>' + c.function.name + '\n' }}{% for k, v in c.function.arguments | items %}{{ '<arg_key>' + k + '</arg_key>\n<arg_value>' }}{{ v if v is string else v | tojson }}{{ '</arg_value>\n' }}{% endfor %}{{ '</tool_call>' }}{% endfor %})";
inline const std::string kMiniMax2Calls =
    R"({{ '\n<minimax:tool_call>\n' }}{% for c in m.tool_calls %}{{ '<invoke name="' + c.function.name + '">\n' }}{% for k, v in c.function.arguments | items %}{{ '<parameter name="' + k + '">' }}{{ v if v is string else v | tojson }}{{ '</parameter>\n' }}{% endfor %}{{ '</invoke>\n' }}{% endfor %}{{ '</minimax:tool_call>' }})";
// Python's literals of values, as far as JSON's differ in three words.
inline std::string python_calls(const std::string& open, const std::string& between, const std::string& close) {
  return "{{ '" + open + R"(' }}{% for c in m.tool_calls %}{{ c.function.name + '(' }})" +
         R"({% for k, v in c.function.arguments | items %}{{ k + '=' }})" +
         R"({% if v is boolean %}{{ 'True' if v else 'False' }}{% else %}{{ v | tojson }}{% endif %})" +
         R"({% if not loop.last %}{{ ', ' }}{% endif %}{% endfor %}{{ ')' }}{% if not loop.last %}{{ ')" + between +
         "' }}{% endif %}{% endfor %}{{ '" + close + "' }}";
}
inline const std::string kLiteralCalls = R"(
{%- macro literal(v) -%}
{%- if v is string %}{{ '<escape>' + v + '<escape>' }}{% elif v is boolean %}{{ 'true' if v else 'false' }}{% elif
v is mapping %}{{ '{' }}{% for k, x in v | items %}{{ k + ':' + literal(x) }}{% if not loop.last %},{% endif %}{%
endfor %}{{ '}' }}{% elif v is sequence %}{{ '[' }}{% for x in v %}{{ literal(x) }}{% if not loop.last %},{% endif
%}{% endfor %}{{ ']' }}{% else %}{{ v }}{% endif -%}
{%- endmacro -%}
{% for c in m.tool_calls %}{{ '<start_function_call>call:' + c.function.name + literal(c.function.arguments) +
'<end_function_call>' }}{% endfor %})";
inline const std::string kChannelTemplate =
    R"({%- if tools %}{{ '<|start|>developer<|message|>' }}{% for t in tools %}{{ t.function.name + ' ' }}{% endfor %}{{ '<|end|>' }}{% endif -%}
{%- for m in messages -%}
{%- if m.role == 'tool' %}{{ '<|start|>functions.' + m.name + ' to=assistant<|channel|>commentary<|message|>' }}{{
m.content | tojson }}{{ '<|end|>' }}
{%- elif m.role == 'assistant' -%}
{%- if m.thinking %}{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{% endif -%}
{%- if m.tool_calls %}{{ '<|start|>assistant to=functions.' + m.tool_calls[0].function.name +
'<|channel|>commentary json<|message|>' }}{{ m.tool_calls[0].function.arguments | tojson }}{{ '<|call|>' }}
{%- else %}{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|return|>' }}{% endif -%}
{%- else %}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif -%})";

// A folder with this template, read.
inline FolderTokenizer tokenizer_with(const std::string& chat_template) {
  TempFolder folder;
  folder.write("tokenizer.json", byte_level_tokenizer().dump());
  folder.write("tokenizer_config.json",
               nlohmann::json({{"chat_template", chat_template}, {"bos_token", "<s>"}, {"eos_token", "</s>"}}).dump());
  return std::move(FolderTokenizer::load(folder.path()).value());
}

// What find_form() finds in a chat template, once for all tests.
inline const Form& form_of(const std::string& chat) {
  static std::map<std::string, Form> forms;
  const auto [found, added] = forms.try_emplace(chat);
  if (added) found->second = find_form(tokenizer_with(chat));
  return found->second;
}

}  // namespace situ::testing
