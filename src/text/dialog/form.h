// How a model spells calls of tools and reasoning, and how its chat template wants them in a history.
//
//   const Form form = find_form(tokenizer);                // once a model: dialog/find_form.h
//   fit_history(form, tools, messages, variables);         // JSON that the template is rendered with: dialog/history.h
//   const bool inside = form.reasoning.open_in(prompt);    // `prompt`: what was rendered
//   SITU_TAKE(lark, call_grammar(form, tools, choice, inside, special_tokens_of(tokenizer)));  // dialog/call_grammar.h
//   ... Grammar::compile(tokenizer, GrammarKind::kAnswer, lark, vocabulary) ...
//   AnswerReader reader(form, tools, inside);              // dialog/answer_reader.h; the text must show form.marks()
//   for (piece : answer) for (const DialogEvent& event : reader.push(piece)) send(event);
//   for (const DialogEvent& event : reader.finish()) send(event);
//
// A form is data: nothing here is told by the name of a model.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace situ {

// An answer with calls reads, N being a name and A arguments:
//   open  call_open BODY call_close  between  call_open BODY call_close  close
// `open` and `close` may be empty, or `call_open` and `call_close`; both: calls have no mark.
struct CallForm {
  enum class Kind {
    kObject,    // BODY: a JSON object that has the name and the arguments, as `shape` shows
    kNamed,     // BODY: N name_close A, where A is a JSON object; between N and name_close perhaps id_open and an id
    kTagged,    // BODY: N name_close {key_open KEY key_close VALUE value_close}
    kPython,    // BODY: N(KEY=VALUE, ...)
    kLiterals,  // BODY: N{KEY:VALUE,...}, texts between `text_quote`s
    kChannels,  // to=functions.N in the header of a message, whose body is A; the whole answer is such messages
  };
  Kind kind = Kind::kObject;
  std::string open, call_open, call_close, between, close;
  // Of kObject: the object as the template writes it, with "$name", "$arguments" and "$id" where these stand; the name
  // may be a key. {"name": "$name", "arguments": "$arguments"}
  std::string shape = R"({"name": "$name", "arguments": "$arguments"})";
  std::string name_close, id_open;
  bool id_is_index = false;  // of kNamed: the id is the number of the call in the answer
  std::string key_open, key_close, value_close;
  std::string text_quote;
  bool several = true;  // the template shows several calls of one answer

  // No letter marks the beginning of a call: only what begins an answer can be one.
  bool bare() const;
};

// Reasoning stands between `open` and `close`; "": the model has none that is known.
struct ReasoningForm {
  std::string open, close;
  std::string field;        // the key of a message that the template reads: "reasoning_content"; "": it reads none
  std::string switch_name;  // the variable that turns reasoning off when it is false: "enable_thinking"; "": none
  std::string effort_name;  // the variable for the effort: "reasoning_effort"; "": none

  // Whether the answer to this prompt begins inside the reasoning.
  bool open_in(std::string_view prompt) const;
};

struct Form {
  CallForm calls;
  ReasoningForm reasoning;
  // -- what the template does with a history
  enum class Ids { kAny, kNineLetters, kFunctionIndex };
  Ids ids = Ids::kAny;             // which ids of calls it takes; kFunctionIndex: functions.NAME:INDEX
  bool ids_begin_anew = false;     // INDEX counts the calls of one answer, not those of the conversation
  bool tools_shown = false;        // it reads `tools`; else they stand behind the system message's text
  bool calls_shown = false;        // it reads `tool_calls`; else calls are text of the assistant
  bool results_shown = false;      // it reads messages of the role tool; else results are text of the user
  bool result_parts = false;       // as parts too, an image among them; else they are texts, and images the user's
  bool system_shown = true;        // it reads messages of the role system; else the tools stand before the user's text
  std::string default_system;      // what it says in place of a system message that is not there
  bool arguments_as_text = false;  // it wants the JSON text of arguments, not the object
  bool null_content = false;       // it reads the calls of an answer without a text only, whose content is null
  // What it drops of a history, to be said once: "the text beside a call", "all calls of an answer but the first".
  std::vector<std::string> dropped;

  // Whether answers may have reasoning that a reader tells apart from text.
  bool reasons() const { return !reasoning.close.empty() || calls.kind == CallForm::Kind::kChannels; }
  // The marks that must be in the text that the reader gets, also where they are special tokens of the tokenizer.
  std::vector<std::string> marks() const;
};

// Calls as {"name": ..., "arguments": ...} between <tool_call> and </tool_call>.
CallForm documented_calls();

}  // namespace situ
