// Situ's public API: load a language model exported to ONNX, generate, or step token by token.
//
//   situ::Result<situ::Model> model = situ::Model::load("path/to/folder", {});
//   if (!model.is_ok()) { puts(model.status().message().c_str()); return 1; }
//   model->generate(situ::Prompt("Once"), {}, [](const situ::Event& e) { fputs(e.text.c_str(), stdout); return true;
//   });
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "situ/generate.h"
#include "situ/generation.h"
#include "situ/load_options.h"
#include "situ/status.h"
#include "situ/tokenizer.h"
#include "situ/tools.h"

namespace situ {

class Model;
struct Internals;  // src/pipelines/llm.h

// One sequence of tokens and its state. Its model stays loaded as long as it is there.
class Session {
 public:
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  // Feeds tokens (ids in [0, vocabulary)) and returns the logits [vocabulary] after the last one, valid
  // until the session's next step. `logits`, [vocabulary] if not empty: they are computed there, and are the caller's;
  // a graph that cannot (half precision, logits of all tokens) has them copied or converted. Errors: an id out of
  // range, the context length exceeded, the state or memory full; the session is then what it was, or empty where the
  // beginning of what it was has left the window.
  Result<std::span<const float>> step(std::span<const int64_t> tokens, std::span<float> logits = {});
  int64_t length() const;
  // Drops the last tokens, so that `length` are left. Error: more than there are; tokens that the next one would attend
  // to have left the window; into the middle of a step whose tokens depend on how many they are (a long rope, `situ
  // inspect` tells); the naive mode cannot.
  Status rewind(int64_t length);
  // One more session that goes on from here, over the same state: nothing is copied. Where attention was not recognised
  // (`situ inspect` tells), the state of a session must be one run of slots: whichever of the two steps second finds
  // the next slot taken, and step() says so.
  Result<Session> fork() const;

  struct Impl;

 private:
  friend class Model;
  friend struct Internals;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A loaded model. A handle: copies share it, and it goes with the last copy and session; requests that run then end
// with kCancelled. Any number of threads may call it at once, by one copy or by several, and its sessions, each by one
// thread at a time: what they ask for is computed by one thread of the runtime that the models of a process share,
// requests in the same steps, sessions between them.
class Model {
 public:
  // `path`: a folder (onnxruntime-genai, Optimum) or one .onnx file. Errors name file, node and values;
  // unsupported operators are listed all at once.
  static Result<Model> load(const std::string& path, const LoadOptions& options);
  static Result<Model> load(const std::string& path, const LoadOptions& options, const Runtime& runtime);

  // Makes ids and arrays of a prompt: texts by the tokenizer, conversations by the chat template, images and sounds as
  // the processor of the model's family does (docs/vision.md): png, jpeg, webp, the first frame of a gif; wav, flac,
  // mp3, ogg. Once read, a prompt stays as it is. Errors: those of Tokenizer; a family that is not known; a file that
  // cannot be read, has too many pixels, or is refused by the family's rules; another number of placeholders than of
  // images or sounds; more tokens than the context.
  Result<Prompt> read(Prompt prompt) const;

  // Asks for answers and returns at once. Errors: those of generate() that are known before anything is computed;
  // kBusy: too many requests wait.
  Result<Ticket> submit(Request request) const;

  // Continues the prompt. Errors: those of read(); of arrays, one that is missing, unknown, or of another type or
  // extent; a prompt that step() would refuse, an option out of its range, what fails before the first token. What
  // fails later ends the answer, which keeps what it has: FinishReason::kError.
  Result<Generation> generate(const Prompt& prompt, const GenerateOptions& options,
                              const EventCallback& on_event) const;
  // Several prompts, each with the answer it has alone: tokens and seed do not depend on the others. They share steps
  // as far as they have room. `on_event` says whose a token is; false ends that answer. Errors: as above; a failing
  // answer ends alone, unless all fail before a token.
  using BatchCallback = std::function<bool(size_t prompt, const Event&)>;
  Result<std::vector<Generation>> generate(std::span<const Prompt> prompts, const GenerateOptions& options,
                                           const BatchCallback& on_event) const;
  Result<std::vector<Generation>> generate(std::span<const std::vector<int64_t>> prompts,
                                           const GenerateOptions& options, const BatchCallback& on_event) const;

  // Several sessions of a model may live side by side. That of an encoder-decoder needs a source before its first step.
  Result<Session> new_session() const;
  // A session behind the encoder's output for the prompt's ids or arrays, before any token of the decoder. Forks of it
  // read the same source. Errors: those of the encoder's inputs; the model has no encoder.
  Result<Session> new_session(const Prompt& prompt) const;
  // As Session::step for each of several sessions, in as few steps as it takes: what it gives for each, in the same
  // order. One that is refused (an error of Session::step; a session that was there before in the list) is what it was,
  // and the others have what a step without it gives them, to the bit. Logits are valid until the next step of these
  // sessions; or computed into `logits`, [feeds, vocabulary], as there, one row behind the other, wherever their spans
  // say. Errors of the whole step, after which all sessions are what they were (but see Session::step): kInterrupted;
  // kNoRoom, where memory runs out; `logits` of another size; a value that a kernel cannot use.
  struct Feed {
    Session* session = nullptr;
    std::span<const int64_t> tokens;
  };
  using Logits = Result<std::span<const float>>;  // of one session
  Result<std::vector<Logits>> step(std::span<const Feed> feeds, std::span<float> logits = {}) const;

  // How well the model foretells these tokens, as the documentation of transformers computes it for texts that are
  // longer than the context. Up to 64 tokens are scored in a step. Errors: those of step(), fewer than 2 tokens,
  // windows that do not fit.
  Result<Perplexity> perplexity(std::span<const int64_t> tokens, const PerplexityOptions& options) const;

  // Embeddings of texts, as sentence-transformers' encode gives them (docs/embeddings.md); the ids of a text, without a
  // prompt; scores of pairs, as CrossEncoder.predict gives them, with the prompt in front of the first text. A row does
  // not depend on the other texts; texts that are too long are cut, and a note says so. Errors: no texts; a text
  // without tokens, or whose embedding is not finite; a model without hidden states, or of the other kind; another size
  // than EmbedOptions::dimensions may be.
  Result<Embeddings> embed(std::span<const std::string> texts, const EmbedOptions& options = {}) const;
  Result<Embeddings> embed(std::span<const std::vector<int64_t>> ids, const EmbedOptions& options = {}) const;
  Result<PairScores> score(std::span<const TextPair> pairs, const EmbedOptions& options = {}) const;
  bool generates() const;     // else it gives embeddings or scores alone
  bool scores_pairs() const;  // of a pair of texts: score(), not embed()

  // For programs that wait in calls and end them by Control-C, where a handler can set a flag and no more; a request by
  // itself is ended by its ticket. Whoever sets the flag ends within milliseconds what the calls of all copies compute:
  // generate() returns what there is so far, be it no token, with FinishReason::kCancelled; step(), perplexity() and
  // what the tokenizer does return the error kInterrupted, which leaves sessions as others do. Loading goes on. The
  // flag must live until another is given; null: none. It stays set until its owner clears it.
  void interrupt_when(const std::atomic<bool>* flag) const;

  bool has_encoder() const;   // that of an encoder-decoder: a prompt is its source
  bool takes_arrays() const;  // of that encoder, or of pictures and sounds for tokens of the prompt
  const Tokenizer& tokenizer() const;

  Stats stats() const;
  LedgerReading ledger() const;
  void reset_ledger() const;
  ModelFacts facts() const;

  // Records every kernel call of the next steps; null: none. The trace must outlive its use and have facts().threads
  // lists. Error: the naive mode, which has no placed programs.
  Status record(Trace* trace) const;
  // Waits until packed weights are in their file.
  void finish_saving() const;

  struct Impl;

 private:
  friend struct Internals;
  explicit Model(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

// As long as it lives, the flag ends the calls of this thread, of any model, and the requests that it submits, as that
// of Model::interrupt_when does, which they then do not follow. Calls and requests of other threads go on.
class CallsOfThread {
 public:
  explicit CallsOfThread(std::shared_ptr<const std::atomic<bool>> flag);
  ~CallsOfThread();
  CallsOfThread(const CallsOfThread&) = delete;
  CallsOfThread& operator=(const CallsOfThread&) = delete;

 private:
  std::shared_ptr<const std::atomic<bool>> former_;
};

// Highest resident set of this process so far, MiB.
double peak_rss_mib();

}  // namespace situ
