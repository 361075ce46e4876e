// What comes back: tokens as they come, answers, embeddings, figures; and the caller's end of a request.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "situ/generate.h"
#include "situ/status.h"
#include "situ/tokenizer.h"

namespace situ {

struct TokenLogprob {
  int64_t id = 0;
  double logprob = 0;  // natural logarithm of the probability that the model gives: nothing above has changed it
};

// Why an answer ended.
enum class FinishReason {
  kNone,        // it has not
  kStop,        // an end-of-sequence token or one of stop_ids (not in output_ids), or the end of a grammar
  kStopString,  // one of GenerateOptions::stop
  kCallback,    // the callback returned false
  kLength,      // max_new_tokens or the context length
  kCancelled,   // Model::interrupt_when, be it before the first token
  kNotStarted,  // the same, of a prompt that was still to come
  kDeadline,    // Request::deadline
  kError,       // what comes next could not be computed or chosen: Generation::error says why
};
// "stop" for the first three reasons, "length", "cancelled", "not_started", "deadline", "error"; "" for kNone.
constexpr const char* finish_reason_name(FinishReason reason) {
  constexpr const char* kNames[] = {"",          "stop",        "stop",     "stop", "length",
                                    "cancelled", "not_started", "deadline", "error"};
  return kNames[static_cast<int>(reason)];
}

// A part of a call of a tool, as it comes. An answer that is cut inside a call has no last part of it.
struct CallPiece {
  size_t call = 0;                  // 0, 1, ... within the answer
  std::string id = {}, name = {};   // in its first part alone
  std::string arguments_json = {};  // joined: the JSON text of one object
  bool ended = false;               // in its last part alone
};

// A token as it comes.
struct Event {
  int64_t id = 0;    // -1: no token: text before the first or after the last, what a token says behind a call, an end
  std::string text;  // whole characters only; empty while one, or a stop string, is incomplete, or without a tokenizer.
                     // An answer that ends within a character ends with U+FFFD, as the decoder has it
  std::optional<double> logprob = {};         // when asked for
  std::vector<TokenLogprob> top = {};         // the most probable ones, first first
  size_t choice = 0;                          // of GenerateOptions::choices
  FinishReason finish = FinishReason::kNone;  // of the last event of a choice: why it ended
  // Of a conversation that Model::read() has read: what the model thinks, before any text, and calls, behind it. They
  // are no part of `text`.
  std::string reasoning = {};
  std::vector<CallPiece> calls = {};

  // A token or something that is said, not an end alone.
  bool is_shown() const { return id >= 0 || !text.empty() || !reasoning.empty() || !calls.empty(); }
};
// Called for every event with a token or a text, by the thread that waits for the answer; false ends the answer behind
// it.
using EventCallback = std::function<bool(const Event&)>;

// A part of a generation: what it took, and the bytes that the ledger counted meanwhile.
struct Stage {
  std::string name;  // an encoder's file without its ending, or "encoder"; "embed", "prefill", "decode"
  double ms = 0;
  int64_t bytes_copied = 0, bytes_written = 0;  // written: copied ones too
};

struct Generation {
  std::vector<int64_t> output_ids;
  std::string text;  // empty without a tokenizer
  // Of a conversation: what the model thought, and the calls that are whole. They are no part of
  // `text`.
  std::string reasoning;
  std::vector<ToolCall> tool_calls;
  int64_t reasoning_tokens = 0;  // of output_ids, with the marks around the reasoning
  FinishReason finish_reason = FinishReason::kNone;
  std::string stop_string = {};  // of kStopString: which of GenerateOptions::stop
  std::string error;             // of kError: one line; else empty
  Code error_code = Code::kOk;
  std::optional<uint64_t> seed;  // when tokens were drawn at random
  struct Logprobs {
    double logprob = 0;             // of the token that was chosen
    std::vector<TokenLogprob> top;  // the most probable ones, first first
  };
  std::vector<Logprobs> logprobs;  // one for each of output_ids when asked for, else empty
  struct PromptLogprob {
    int64_t id = 0;
    double logprob = 0;
    int64_t rank = 1;               // 1: the most probable one
    std::vector<TokenLogprob> top;  // as above
  };
  std::vector<PromptLogprob> prompt_logprobs;  // of the prompt's tokens but the first, when asked for
  // exp of the mean negative log-likelihood of output_ids, as logprobs would give them but for the
  // rounding of floats (1e-5 of it); when asked for and there is a token.
  std::optional<double> perplexity;
  struct Answer {
    std::vector<int64_t> output_ids;
    std::string text;
    FinishReason finish_reason = FinishReason::kNone;
    double score = 0;
    std::vector<Logprobs> logprobs = {};  // as above
    std::string error = {};               // of kError
    std::string reasoning = {};           // as above
    std::vector<ToolCall> tool_calls = {};
    int64_t reasoning_tokens = 0;
    std::string stop_string = {};
  };
  // What the folder's files ask for and was left out, though it may change tokens; that the chat template shows no
  // tools.
  std::vector<std::string> notes;
  // Of several choices, in their order, or of a beam search, best first; the first is what stands above. After kError:
  // those that were found, and the beams as far as they had come.
  std::vector<Answer> answers;
  int64_t guessed_tokens = 0,
          accepted_tokens = 0;  // of prompt_lookup or draft_tokens: guesses, and those that were right
  int64_t cached_tokens = 0;    // of the prompt, whose state an earlier generation had kept
  double encode_ms = 0;         // encoders, and the embeddings of a prompt with pictures or sounds
  // Of a prompt that encoders ran for, in order: each encoder, then "embed" where pictures or sounds are among the
  // embeddings, "prefill", "decode". Else empty, as it is where several prompts were given together.
  std::vector<Stage> stages;
  std::vector<int64_t> decoder_prompt_ids;  // of an encoder-decoder: what output_ids follow
  double prefill_ms = 0;
  double decode_ms_per_token = 0;  // mean over the tokens after the first; 0 when there are none
  // Of several prompts together: of all answers, prompts included, per token generated.
  double bytes_copied_per_token = 0;   // all bytes copied, prompt included, per generated token
  double bytes_written_per_token = 0;  // mean over decode steps (over the prompt when there are none)
};

// Any thread may call it. Destroying it cancels the request.
class Ticket {
 public:
  Ticket(Ticket&&) noexcept;
  Ticket& operator=(Ticket&&) noexcept;
  ~Ticket();

  // The next event; none: it has not come within `patience`, or there are no more (ended()). Events wait here for as
  // long as it takes, and nobody else does.
  std::optional<Event> next(std::chrono::milliseconds patience = std::chrono::hours(24));
  std::optional<Event> poll() { return next(std::chrono::milliseconds(0)); }
  // Whether all tokens were taken and the request is over: result() does not wait.
  bool ended() const;
  // Calls `ready` whenever a token or the end comes, by a thread that must not be kept waiting; and now, if something
  // is there. Not after the ticket is gone.
  void on_ready(std::function<void()> ready);
  // The request ends after the step that runs, or within it where all that take part in it are cancelled: with
  // FinishReason::kCancelled and what there is by then.
  void cancel();
  // Waits for the end, whatever tokens were not taken; false: it has not come within `patience`.
  bool wait(std::chrono::milliseconds patience);
  // Waits for the end. Error: what failed before the first token.
  Result<Generation> result();
  uint64_t number() const;  // among the requests of the process, in the order of submission
  struct Impl;

 private:
  friend class Model;
  explicit Ticket(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

struct PerplexityOptions {
  int64_t context = 0;  // tokens of a window; 0: the model's context length
  int64_t stride = 0;  // from one window to the next, less than a window; 0: half of one. Each token is scored once, in
                       // the first window that has it
};
struct Perplexity {
  int64_t tokens = 0;    // that were scored: all but the first
  double mean_nll = 0;   // of their negative log-likelihoods, natural logarithm; infinite where one had probability 0
  double value() const;  // exp(mean_nll)
  double ms = 0;
  int64_t bytes_copied = 0;
};

// Of a model since it was loaded, but for what says "now".
struct Stats {
  int64_t running = 0, waiting = 0;                                 // requests, now
  int64_t steps = 0;                                                // runs of a program that fed tokens
  int64_t rows = 0;                                                 // tokens that were fed, those of a step together
  int64_t prompt_tokens = 0, cached_tokens = 0, answer_tokens = 0;  // of requests that are over; cached: of the prompts
  int64_t preemptions = 0;
  int64_t slots = 0, slots_free = 0;          // of the state, now; free: kept prefixes count as taken
  int64_t slots_kept = 0;                     // now, of kept prefixes
  int64_t bytes_copied = 0, steps_alone = 0;  // alone: by one thread, since other processes had the processors
};

}  // namespace situ
