// What an answer says, event by event: no JSON, no protocol. A stream is written of these events one by one; a whole
// answer is written of what they fold to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "serve/refusal.h"
#include "situ/generation.h"
#include "text/dialog/events.h"

namespace situ::serve {

// A token whose log-probability is told.
struct Told {
  int64_t id = 0;
  std::optional<double> logprob = {};  // none: of the first token of a prompt
  std::vector<TokenLogprob> top = {};
};

struct Usage {
  int64_t prompt = 0, answer = 0, cached = 0;  // tokens; cached: of the prompt
  int64_t reasoning = 0;                       // of the answer
};

// Of a whole answer; rates are of all its choices.
struct Timings {
  double prompt_ms = 0, prompt_per_second = 0, predicted_ms = 0, predicted_per_second = 0, queue_ms = 0;
  int64_t cached = 0, prompt = 0, predicted = 0, bytes_copied = 0, guessed = 0, accepted = 0;
};

// The first event of each choice.
struct Begun {
  int64_t prompt_tokens = 0;
};

// The last event of each choice.
struct Ended {
  FinishReason reason = FinishReason::kNone;
  int64_t tokens = 0;                                           // of the choice
  std::string stop_string = {};                                 // of kStopString, where it is known
  std::vector<Generation::PromptLogprob> prompt_logprobs = {};  // of the first choice of a prompt, when asked for
  std::optional<uint64_t> seed = {};
};

// The last event of an answer.
struct Finished {
  Usage usage;
  std::optional<Timings> timings;
};

struct Out {
  size_t choice = 0;  // of all prompts: prompt * choices + choice; 0 of Finished and of a Refusal
  std::variant<Begun, ReasoningPiece, TextPiece, CallBegun, ArgumentsPiece, CallEnded, Ended, Finished, Refusal> what;
  std::vector<Told> tokens = {};  // of a piece, when asked for
};

// What the events of an answer fold to.
struct WholeAnswer {
  struct Call {
    std::string name, arguments_json;
    bool ended = false;
  };
  struct Choice {
    std::string reasoning, text;
    std::vector<Call> calls;  // an answer that was cut may have one at its end that has not ended
    std::vector<Told> tokens;
    Ended end;
  };
  std::vector<Choice> choices;
  Finished finished;

  void put(const Out& out);
};

}  // namespace situ::serve
