// From the ids of an answer to what the caller sees: events with whole characters, in which nothing of a stop string
// stands; of a conversation, reasoning and calls apart from the text.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "situ/generation.h"
#include "text/decode_stream.h"
#include "text/dialog/answer_reader.h"
#include "text/stop_strings.h"

namespace situ {

// What the events of an answer say together.
struct Said {
  std::string text, reasoning;
  std::vector<ToolCall> calls;
  std::vector<bool> ended;  // by call
  void add(const Event& event);
  // Only calls that are whole.
  std::vector<ToolCall> take_calls();
  // To a Generation, or to one of its answers.
  template <typename Made>
  void move_to(Made& made) {
    made.text = std::move(text);
    made.reasoning = std::move(reasoning);
    made.tool_calls = take_calls();
  }
};

class AnswerText {
 public:
  struct Rules {
    bool wanted = true;                         // else every text is empty
    std::vector<std::string> stop = {};         // stop strings that are not special tokens
    std::function<AnswerReader()> reader = {};  // what tells reasoning and calls from text; none: all is text
    std::span<const int64_t> marks = {};        // special tokens that the reader reads; must outlive the answer
  };
  // `tokenizer`: null where there is none; every text is then empty. `to`: gets the events; null: nobody does.
  AnswerText(const FolderTokenizer* tokenizer, const Rules& rules, std::vector<Event>* to, size_t choice);

  // The prompt's text, before any push(): what follows is then decoded as its continuation. Stop strings in it do not
  // count.
  Status echo(std::span<const int64_t> prompt);
  // The next token, with what became certain by it.
  Status push(Event token);
  // Whether a stop string has come. Nothing comes after it.
  bool stopped() const { return stop_.stopped(); }
  // The rest, and the end. Returns why the answer ended: by `reason`, unless the rest has a stop string or a call is
  // cut.
  FinishReason end(FinishReason reason);
  // All that was said, after end(), to a Generation or to one of its answers.
  template <typename Made>
  void move_to(Made& made) {
    said_.move_to(made);
    made.reasoning_tokens = reasoning_tokens_;
    if (made.finish_reason == FinishReason::kStopString) made.stop_string = stop_.found();
  }

 private:
  Result<std::string> certain(int64_t id);
  Result<std::string> rest();
  void count(bool inside, const std::vector<DialogEvent>& events);
  void show(Event event);
  void show(Event event, const std::vector<DialogEvent>& said);

  const FolderTokenizer* tokenizer_;
  std::span<const int64_t> marks_;
  std::optional<DecodeStream> stream_;
  StopStrings stop_;
  std::optional<AnswerReader> reader_;
  std::vector<Event>* to_;
  size_t choice_;
  Said said_;
  int64_t reasoning_tokens_ = 0, undecided_ = 0;  // the second: tokens that a later one may show to be reasoning
};

}  // namespace situ
