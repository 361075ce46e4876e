// A loaded model as requests see it: its engine, what is known of it, and strands, the sequences that it is fed.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_flag.h"
#include "requests/picture.h"
#include "runtime/engine.h"
#include "runtime/naive_engine.h"

namespace situ {

class Scheduler;
class TextEncoder;
class FolderTokenizer;
struct Strand;

struct Served {
  std::unique_ptr<InPlaceEngine> in_place;  // exactly one of the two, or neither: the model gives embeddings alone
  std::unique_ptr<NaiveEngine> naive;
  std::string file, where;  // of the decoder, and its folder: for errors
  int64_t vocabulary = 0;
  int64_t context_length = 0;
  int64_t queue_limit = 1024;                   // requests that wait at most, beyond room()
  int64_t running_limit = INT64_MAX;            // requests that run at most; fewer where steps take fewer
  std::atomic<int64_t> waiting{0}, running{0};  // as many do
  std::atomic<bool> full{false};                // those that wait need slots that others have
  // Of those that wait, how many the scheduler begins when it looks at them next.
  int64_t room() const { return full ? 0 : std::max<int64_t>(0, std::min(rows(), running_limit) - running); }
  Scheduler* scheduler = nullptr;                            // that feeds it
  std::atomic<const std::atomic<bool>*> interrupt{nullptr};  // a flag of the caller that ends what follows it
  // Whether what this thread asks for is to end.
  bool interrupted() const {
    const std::atomic<bool>* const flag = thread_flag_or(interrupt);
    return flag && flag->load();
  }
  PictureFrame frame;                          // see Scheduler::picture
  const FolderTokenizer* tokenizer = nullptr;  // null: ids only
  static constexpr int64_t kMostTexts = 64;    // requests for embeddings alone that share steps
  Served* draft = nullptr;                     // a smaller model that guesses; null: none

  Ledger* other_ledger = nullptr;       // of a model that has neither engine, and gives embeddings alone
  TextEncoder* text_encoder = nullptr;  // for embeddings; null: none was asked for

  Ledger& ledger() { return in_place ? in_place->ledger() : naive ? naive->ledger() : *other_ledger; }
  bool has_encoder() const { return in_place ? in_place->encoder() != nullptr : naive && naive->has_encoder(); }
  // Whether steps take several sequences, prompts too, and give several rows of each.
  bool together() const { return in_place && in_place->one_sequence().empty(); }
  // Most tokens of one sequence in a step whose logits are wanted, and of all of them; most sequences of a step.
  int64_t rows_of_one() const { return together() ? in_place->batch() : 1; }
  int64_t rows() const { return in_place ? in_place->batch() : text_encoder ? kMostTexts : 1; }
  // Most rows of a prompt in a step; where prompts stay whole they are one piece.
  int64_t chunk() const {
    return in_place && in_place->compiled().order.mixing.empty() ? in_place->chunk() : context_length;
  }
  // Recurrent states: of a sequence they are known as they were after few of its steps.
  bool whole_states() const { return in_place && in_place->has_replaced_states(); }
  // Prompts are cut at multiples of chunk() of their own tokens: where a graph spells out a recurrence, its sums may
  // follow the cut.
  bool fixed_cuts() const { return whole_states() && !together(); }
  // Most guesses behind the next token of a sequence of `length`. Those that do not hold are a rewind: to where a
  // recurrent state is kept.
  int64_t most_guesses(int64_t length) const {
    const int64_t alike = in_place ? in_place->tokens_alike(length) : 0;
    return whole_states() ? std::min(alike, kWrittenStates - 1) : alike;
  }
  PrefixCache* prefixes() const { return in_place ? in_place->prefixes() : nullptr; }

  // Refuses ids outside the vocabulary.
  Status check_ids(std::span<const int64_t> tokens) const;
  // The same, no tokens, and more tokens than the context holds.
  Status check(std::span<const int64_t> tokens, int64_t length) const;

  // Feeds strands, each once, as InPlaceEngine::step says; the naive mode one. On the scheduler's thread, as all that
  // touches the state of sequences.
  struct Feed : InPlaceEngine::Feed {  // whose sequence is the strand's
    Strand* strand = nullptr;
  };
  Status step(std::span<Feed* const> feeds);
};

// What an encoder is given, and the tokens that the decoder is fed first.
struct Start {
  EncoderInput source;              // but for its ids
  std::vector<int64_t> source_ids;  // of an encoder that takes some
  std::vector<int64_t> decoder;
};

// A sequence of either engine. Its slots are touched, given back too, by the scheduler's thread alone.
struct Strand {
  Served* served = nullptr;
  std::optional<Sequence> sequence;    // in place
  NaiveSequence naive;                 // else
  std::unique_ptr<Encoding> encoding;  // as long as it is not done

  Strand() = default;
  Strand(Strand&&) noexcept = default;
  Strand& operator=(Strand&&) noexcept = default;
  explicit Strand(Served& of);
  int64_t length() const { return sequence ? sequence->length() : naive.length; }
  Strand fork() const;
  // Precondition: what is dropped can be (InPlaceEngine::can_rewind).
  void rewind(int64_t length);
  // Runs the encoders that the model has; the strand goes on behind them. Encoders of pictures and sounds make rows for
  // tokens of the prompt. `start` must live until it is true; until then: Encoding::go_on. After an error it is as new.
  Result<bool> encode(const Start& start, Clock::time_point until, std::vector<Stage>* stages);
  // Before the first step, and behind encode(): goes on behind the longest kept beginning of `prompt`. The last token
  // is computed in any case: its logits are not kept. `all`: rows of answers may be among them.
  // `salt`: of what is kept with the same one.
  void take_prefix(std::span<const int64_t> prompt, bool all, const std::string& salt);
  // Keeps the rows of `tokens`, the first ones of it: those of a prompt, or (`all`) of any kind.
  void keep_prefix(std::span<const int64_t> tokens, bool all, const std::string& salt) const;
};

}  // namespace situ
