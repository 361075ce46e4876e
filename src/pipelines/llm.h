// The language-model pipeline behind the public API: folder -> graph -> engine -> tokens -> text.
#pragma once

#include <memory>
#include <optional>

#include "generate/likelihood.h"
#include "pipelines/embedder.h"
#include "pipelines/model_folder.h"
#include "runtime/engine.h"
#include "runtime/naive_engine.h"
#include "situ/model.h"
#include "text/tokenizer.h"

namespace situ {

// What the public classes hide.
struct Internals {
  template <typename T>
  static typename T::Impl& of(T& t) {
    return *t.impl_;
  }
};
inline Model::Impl& impl_of(Model& model) { return Internals::of(model); }
inline const Model::Impl& impl_of(const Model& model) { return Internals::of(model); }
inline Session::Impl& impl_of(Session& session) { return Internals::of(session); }

struct Model::Impl {
  ModelFolder folder;
  ModelFiles files;
  std::unique_ptr<InPlaceEngine> in_place;  // exactly one of the two, or neither: the model gives embeddings alone
  std::unique_ptr<NaiveEngine> naive;
  std::optional<Tokenizer> tokenizer;
  // Refers to folder, files and tokenizer. Of a model that generates: made when embeddings are first asked for.
  std::unique_ptr<Embedder> embedder;
  LoadOptions loaded;            // as Model::load was asked
  std::unique_ptr<Model> draft;  // or null
  int64_t vocabulary = 0;
  int64_t source_vocabulary = 0;  // rows of the table that the encoder's ids index; 0: not known
  int64_t context_length = 0;
  double load_ms = 0;
  int sessions = 0;                      // that live
  std::vector<LikelihoodMeter*> meters;  // that may still read the logits of earlier steps
  std::vector<float> kept;               // logits of the feeds of Model::step, where they do not stay in their place

  const Tokenizer* text() const { return tokenizer ? &*tokenizer : nullptr; }  // null: ids only
  // Why there is no conversation.
  std::string no_chat_template() const {
    return tokenizer ? folder.folder.string() + ": the model has no chat template" : folder.no_tokenizer;
  }
  bool generates() const { return in_place || naive; }
  // The error of a model that gives embeddings alone.
  Status check_generates() const;
  Result<Embedder*> embeds();
  Status load_embedder();
  Ledger& ledger() { return in_place ? in_place->ledger() : naive ? naive->ledger() : embedder->encoder().ledger(); }
  const Compiled& compiled() const { return in_place ? in_place->compiled() : naive->compiled(); }
  std::span<const float> logits() const { return in_place ? in_place->logits() : naive->logits(); }
  bool interrupted() const { return in_place ? in_place->interrupted() : naive->interrupted(); }
  Result<Session> new_session();
  bool encoder_takes_ids() const;
  // Refuses ids that the encoder's table has no row for.
  Status check_source(std::span<const int64_t> ids) const;
  bool has_encoder() const { return in_place ? in_place->encoder() != nullptr : naive && naive->has_encoder(); }
  bool takes_media() const { return !files.media.empty(); }
  // Feeds any number of sessions, each once, and calls `each` with the wanted logits, in order. The result, [feeds]:
  // ok, or why a feed is refused: its session is then what it was, and the others are what they are after a step
  // without it. After an error, and where memory runs out (std::bad_alloc), all are what they were.
  struct Feed {
    Session::Impl* session = nullptr;
    std::span<const int64_t> tokens;
    int64_t wanted = 1;  // logits after each of so many tokens, the last ones
    bool apart = true;   // see InPlaceEngine::Feed, as of
    int64_t whole = 0;
  };
  // `to`: where they are wanted, [wanted, vocabulary], not all of it where feeds are refused; null: where they are.
  Result<std::vector<Status>> step(std::span<const Feed> feeds, const InPlaceEngine::LogitsOf& each,
                                   float* to = nullptr);
  // The same, for feeds that belong together: the error of the first one that is refused.
  Status step_all(std::span<const Feed> feeds, const InPlaceEngine::LogitsOf& each);
  // Before every step of an engine, whoever asks for it.
  void begin_step() {
    for (LikelihoodMeter* m : meters) m->begin_step();
    if (in_place && !meters.empty()) in_place->next_turn();
  }
  // Most tokens of one step whose logits are wanted, of whatever sequences.
  int64_t batch() const { return in_place && in_place->one_sequence().empty() ? in_place->batch() : 1; }
  // Refuses a feed without a session of this model, or whose session is there before.
  Status check_session(std::span<const Model::Feed> feeds, size_t i) const;
  // Most guesses behind the next token of a sequence of `length`.
  int64_t most_guesses(int64_t length) const { return in_place ? in_place->tokens_alike(length) : 0; }
  // Most sequences of which a step takes one token each.
  int64_t sequences() const { return in_place ? in_place->batch() : 1; }
  // Refuses ids outside the vocabulary.
  Status check_ids(std::span<const int64_t> tokens) const;
  // The same, no tokens, and more tokens than the context holds.
  Status check(std::span<const int64_t> tokens, int64_t length) const;

 private:
  class Undo;
  Status step_group(std::span<const Feed> feeds, std::span<const size_t> group, const InPlaceEngine::LogitsOf& each,
                    std::span<Status> refused, float* to);
};

// A meter that reads logits while steps run, where the model has two places for them.
class LikelihoodBesideSteps {
 public:
  explicit LikelihoodBesideSteps(Model::Impl& model)
      : model_(model), meter_(model.in_place && model.in_place->logits_have_two_places()) {
    model.meters.push_back(&meter_);
  }
  ~LikelihoodBesideSteps() { std::erase(model_.meters, &meter_); }
  LikelihoodBesideSteps(const LikelihoodBesideSteps&) = delete;
  LikelihoodBesideSteps& operator=(const LikelihoodBesideSteps&) = delete;
  LikelihoodMeter& meter() { return meter_; }

 private:
  Model::Impl& model_;
  LikelihoodMeter meter_;
};

struct Session::Impl {
  Model::Impl* model;
  std::optional<Sequence> sequence;  // in place
  NaiveSequence naive;               // else
  explicit Impl(Model::Impl* m) : model(m) { ++model->sessions; }
  ~Impl() { --model->sessions; }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  // Runs the encoder; the session goes on behind its output. Encoders of pictures and sounds make rows for tokens of
  // `prompt`, which the session is to be fed next. `stages`: what encoders and lookup took are added.
  Status encode(const EncoderInput& input, std::span<const int64_t> prompt, std::vector<Stage>* stages);
  int64_t length() const { return sequence ? sequence->length() : naive.length; }
  Status step(std::span<const int64_t> tokens, float* to = nullptr);
  // Before the first step, and behind encode(): goes on behind the longest kept beginning of `prompt`. The last token
  // is computed in any case: its logits are not kept.
  void take_prefix(PrefixCache& prefixes, std::span<const int64_t> prompt);
  // Precondition: tokens.size() == length().
  void keep_prefix(PrefixCache& prefixes, std::span<const int64_t> tokens) const;
};

}  // namespace situ
