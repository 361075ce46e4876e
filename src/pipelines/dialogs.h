// Conversations whose answers have calls of tools or reasoning: how a model spells these (dialog/form.h), and what that
// asks of prompts, of the choice of tokens and of the text of an answer.
#pragma once

#include <string>
#include <vector>

#include "pipelines/grammar_cache.h"
#include "text/dialog/answer_reader.h"
#include "text/dialog/form.h"
#include "text/dialog/tool.h"

namespace situ {

struct ModelForm {
  Form form;
  std::vector<int64_t> shown;  // special tokens in the form's marks, which texts of answers have
};
ModelForm form_of(const FolderTokenizer& tokenizer);

struct Dialog {
  const ModelForm* form = nullptr;  // of the model; null: answers are text alone, and conversations what they are
  std::vector<Tool> tools = {};     // that are shown; none: calls are text
  ToolChoice choice = {};
  bool in_reasoning = false;            // the prompt has begun the reasoning: see read_prompt()
  bool calls_first = false;             // an answer is calls, or what the options ask for: see set_grammar()
  GrammarCache::OfAnswer grammar = {};  // what the answer must match; "": what the options ask for

  // Whether the text of the answer has marks that are read. Else it is shown as it is.
  bool reads() const { return form && (!tools.empty() || form->form.reasons()); }
  AnswerReader reader() const { return AnswerReader(form->form, tools, in_reasoning, calls_first); }
};

// Of a conversation by itself, before it is rendered. `form`: null: the tools are checked, and there is no dialog.
Result<Dialog> dialog_of(const ModelForm* form, const ChatOptions& options);
// The grammar of an answer that may, or must, call one of the tools, or is what the options ask for, behind the
// reasoning that comes first; one that is set stays. Error kInvalidArgument: a tool that is wrong, as the option
// "tools".
Status set_grammar(Dialog* dialog, const GenerateOptions& options, const FolderTokenizer& tokenizer);

}  // namespace situ
