#include "pipelines/verify.h"

#include <algorithm>
#include <cmath>

#include "passes/host/telling_lengths.h"
#include "pipelines/encoder_inputs.h"
#include "pipelines/llm.h"
#include "pipelines/probe_arrays.h"
#include "pipelines/sampling.h"

namespace situ {
namespace {

constexpr double kSame = 1e-3;  // of the largest logit: sums in another order
constexpr size_t kNextTokens = 4;
constexpr int64_t kLongest = 1024;     // tokens of the text that passes all numbers of the graph
constexpr size_t kMostCompared = 256;  // of its lengths
constexpr size_t kLengths[] = {5, 17, 40, 9, 1, 64, 23, 2};

using Ids = std::vector<int64_t>;

class Random {
 public:
  uint64_t below(uint64_t n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (state_ >> 33) % n;
  }

 private:
  uint64_t state_ = 20;
};

size_t best(std::span<const float> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

class Comparison {
 public:
  explicit Comparison(Verification* v) : v_(*v) {}
  void add(std::span<const float> literal, std::span<const float> placed) {
    if (literal.size() != placed.size()) {
      v_.largest_difference = INFINITY;
      return;
    }
    for (size_t i = 0; i < literal.size(); ++i) {
      const double a = literal[i], b = placed[i],
                   difference = a == b || (std::isnan(a) && std::isnan(b)) ? 0 : std::fabs(a - b);
      v_.largest_logit = std::max(v_.largest_logit, std::isfinite(a) ? std::fabs(a) : 0);
      v_.largest_difference = std::max(v_.largest_difference, std::isnan(difference) ? INFINITY : difference);
      v_.ids_equal = v_.ids_equal && !std::isnan(difference);
    }
  }
  void add_logits(std::span<const float> literal, std::span<const float> placed) {
    add(literal, placed);
    v_.ids_equal = v_.ids_equal && literal.size() == placed.size() && best(literal) == best(placed);
    ++v_.tokens;
  }

 private:
  Verification& v_;
};

// What the literal graph gives: logits behind the prompt, and behind each token that it then chose.
struct Expected {
  Prompt source;  // of an encoder
  Ids prompt, next;
  std::vector<std::vector<float>> logits;
};

class Verifier {
 public:
  Verifier(Model& literal, Model& placed, Verification* v)
      : literal_(literal), placed_(placed), v_(*v), comparison_(v) {}

  Status run(int64_t prompts) {
    for (int64_t i = 0; i < prompts; ++i) {
      Result<Expected> e = expect(static_cast<size_t>(i));
      if (!e.is_ok()) return e.status().with_context("the literal graph");
      expected_.push_back(std::move(*e));
    }
    for (size_t i = 0; i < expected_.size(); ++i) SITU_RETURN_IF_ERROR(begin(i));
    SITU_RETURN_IF_ERROR(go_on_together());
    if (!model().has_encoder()) SITU_RETURN_IF_ERROR(walk());
    v_.prompts = prompts;
    return Status::ok();
  }

 private:
  const Model::Impl& model() const { return impl_of(placed_); }

  Ids random_ids(size_t count, int64_t vocabulary) {
    const MediaTokens& media = model().folder.media;
    Ids ids;
    while (ids.size() < count) {
      const auto id = static_cast<int64_t>(random_.below(static_cast<uint64_t>(vocabulary)));
      if (id != media.image && id != media.audio) ids.push_back(id);
    }
    return ids;
  }

  // How many tokens of a prompt of so many are fed at once: all, the first two thirds in two parts, or a third, which a
  // fork goes on from.
  static std::vector<size_t> cuts(size_t number, size_t length) {
    const size_t third = length / 3;
    if (third > 0 && number % 4 == 1) return {third, third, length - 2 * third};
    if (third > 0 && number % 4 == 2) return {third, length - third};
    return {length};
  }

  // Fed in the same parts as the placed programs are: what a graph does may depend on these, as a rotary embedding by
  // the length of the whole does, or numbers that are rounded with all tokens of a step.
  Result<Expected> expect(size_t number) {
    Expected e;
    const auto room = static_cast<size_t>(std::max<int64_t>(1, model().context_length - int64_t{kNextTokens}));
    const size_t length = std::min(kLengths[number % std::size(kLengths)], room);
    e.prompt = random_ids(length, model().vocabulary);
    if (model().has_encoder()) {
      const Result<int64_t> first = decoder_start_id(model().folder, model().vocabulary);
      if (first.is_ok()) e.prompt[0] = *first;
      SITU_RETURN_IF_ERROR(add_source(length, &e.source));
    }
    Result<Session> session = open(literal_, e);
    if (!session.is_ok()) return session.status();
    Ids fed = e.prompt;
    const std::vector<size_t> parts = cuts(number, length);
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      SITU_RETURN_IF_ERROR(feed(*session, std::span(fed).first(parts[i])));
      fed.erase(fed.begin(), fed.begin() + static_cast<ptrdiff_t>(parts[i]));
    }
    for (size_t t = 0;; ++t) {
      const Result<std::span<const float>> logits = session->step(fed);
      if (!logits.is_ok()) return logits.status();
      const auto bad = std::find_if(logits->begin(), logits->end(), [](float x) { return std::isnan(x); });
      if (bad != logits->end())  // an answer ends with this error
        return Status::error("logits of id " + std::to_string(bad - logits->begin()) + " are not a number");
      e.logits.emplace_back(logits->begin(), logits->end());
      const bool full = session->length() + 1 > model().context_length;
      if (t == kNextTokens || full) return e;
      fed = {static_cast<int64_t>(best(*logits))};
      e.next.push_back(fed[0]);
    }
  }

  Status add_source(size_t length, Prompt* source) {
    if (model().encoder_takes_ids()) {
      const int64_t rows = model().source_vocabulary > 0 ? model().source_vocabulary : model().vocabulary;
      *source = Prompt(random_ids(std::max<size_t>(2, length), rows));
      return Status::ok();
    }
    Result<std::vector<GivenTensor>> arrays = probe_arrays(model().folder, model().files.encoder->graph);
    if (!arrays.is_ok()) return arrays.status();
    arrays_.push_back(std::move(*arrays));
    for (const GivenTensor& array : arrays_.back()) source->parts.push_back(array_part(array.name, array.tensor));
    source->decoder_ids = {0};  // not fed: sessions are
    return Status::ok();
  }

  static Result<Session> open(Model& model, const Expected& e) {
    return model.has_encoder() ? model.new_session(e.source) : model.new_session();
  }

  // Feeds a prompt: whole, in parts, by a fork, or with others (which the next tokens are in any case).
  Status begin(size_t i) {
    const Expected& e = expected_[i];
    Result<Session> opened = open(placed_, e);
    if (!opened.is_ok()) return opened.status();
    Session session = std::move(*opened);
    const std::span<const int64_t> ids(e.prompt);
    const std::vector<size_t> parts = cuts(i, ids.size());
    size_t fed = 0;
    for (size_t k = 0; k + 1 < parts.size(); fed += parts[k++])
      SITU_RETURN_IF_ERROR(feed(session, ids.subspan(fed, parts[k])));
    if (parts.size() == 2)
      if (Result<Session> fork = session.fork(); fork.is_ok()) {
        std::swap(session, *fork);
        others_.push_back(std::move(*fork));
      }
    Result<std::span<const float>> logits = session.step(ids.subspan(fed));
    if (!logits.is_ok()) return logits.status();
    comparison_.add_logits(e.logits[0], *logits);
    // The one that was forked goes elsewhere, and the fork must not see it.
    if (!others_.empty())
      if (const Ids other = random_ids(1, model().vocabulary); others_.back().length() + 1 < model().context_length)
        (void)others_.back().step(other);
    sessions_.push_back(std::move(session));
    return Status::ok();
  }
  static Status feed(Session& session, std::span<const int64_t> ids) { return session.step(ids).status(); }

  // The next tokens of all prompts, in one step each; and one more session with the first prompt in the first of them.
  Status go_on_together() {
    Result<Session> again = open(placed_, expected_[0]);
    if (!again.is_ok()) return again.status();
    for (size_t t = 0; t < kNextTokens; ++t) {
      std::vector<Model::Feed> feeds;
      std::vector<std::span<const float>> wanted;
      for (size_t i = 0; i < sessions_.size(); ++i) {
        const Expected& e = expected_[i];
        if (t >= e.next.size()) continue;
        feeds.push_back({&sessions_[i], std::span(e.next).subspan(t, 1)});
        wanted.push_back(e.logits[t + 1]);
      }
      if (t == 0) {
        feeds.push_back({&*again, expected_[0].prompt});
        wanted.push_back(expected_[0].logits[0]);
      }
      if (feeds.empty()) break;
      const Result<std::vector<Model::Logits>> made = placed_.step(feeds);
      if (!made.is_ok()) return made.status();
      for (size_t f = 0; f < feeds.size(); ++f) {
        if (!(*made)[f].is_ok()) return (*made)[f].status();
        comparison_.add_logits(wanted[f], *(*made)[f]);
      }
    }
    return Status::ok();
  }

  // A text of random ids by both, token by token at each length that tells others, in one step between these.
  Status walk() {
    const Compiled& graph = impl_of(literal_).naive->compiled();
    ThreadPool one(1);
    Evaluator evaluator(one);
    std::vector<int64_t> lengths =
        telling_lengths(graph.graph, graph.binding, evaluator, Phase::kAny, model().context_length);
    std::erase_if(lengths, [](int64_t n) { return n > kLongest; });
    if (lengths.size() > kMostCompared) lengths.resize(kMostCompared);
    const Ids ids = random_ids(static_cast<size_t>(lengths.empty() ? 0 : lengths.back()), model().vocabulary);
    Result<Session> a = literal_.new_session(), b = placed_.new_session();
    if (!a.is_ok() || !b.is_ok()) return (a.is_ok() ? b : a).status();
    size_t fed = 0;
    const auto step = [&](size_t count) -> Status {
      const std::span<const int64_t> next = std::span(ids).subspan(fed, count);
      const Result<std::span<const float>> x = a->step(next);
      if (!x.is_ok()) return x.status().with_context("the literal graph");
      const Result<std::span<const float>> y = b->step(next);
      if (!y.is_ok()) return y.status();
      fed += count;
      comparison_.add_logits(*x, *y);
      v_.lengths.push_back(static_cast<int64_t>(fed));
      return Status::ok();
    };
    for (const int64_t length : lengths) {
      const auto until = static_cast<size_t>(length);
      if (until > fed + 1) SITU_RETURN_IF_ERROR(step(until - 1 - fed));
      SITU_RETURN_IF_ERROR(step(1));
    }
    return Status::ok();
  }

  Model& literal_;
  Model& placed_;
  Verification& v_;
  Comparison comparison_;
  Random random_;
  std::vector<Expected> expected_;
  std::vector<std::vector<GivenTensor>> arrays_;
  std::vector<Session> sessions_, others_;
};

// Rows of an encoder of texts: literally one after the other, placed all together.
Status verify_texts(Model& model, int64_t prompts, Verification* v) {
  const Model::Impl& m = impl_of(model);
  TextEncoder& placed = m.embedder->encoder();
  const Result<Graph> graph = graph_for_texts(m.files.decoder, m.embedder->output());
  if (!graph.is_ok()) return graph.status();
  EngineOptions options;
  options.names = m.folder.names;
  options.float_activations = true;
  options.source_length = placed.most_tokens();
  const Result<Compiled> literal = compile(*graph, options, nullptr, use_for_texts(m.embedder->output()));
  if (!literal.is_ok()) return literal.status().with_context("the literal graph");
  Random random;
  Comparison comparison(v);
  std::vector<Ids> ids;
  std::vector<TextTokens> texts;
  std::vector<std::vector<float>> wanted;
  const int64_t table = m.source_vocabulary > 0 ? m.source_vocabulary : text_graph(m.files.decoder.graph).table_rows;
  ThreadPool one(1);
  Evaluator evaluator(one);
  for (int64_t i = 0; i < prompts; ++i) {
    const auto most = static_cast<size_t>(placed.most_tokens());
    Ids& text = ids.emplace_back();
    for (size_t n = std::min(kLengths[static_cast<size_t>(i) % std::size(kLengths)], most); n > 0; --n)
      text.push_back(static_cast<int64_t>(random.below(static_cast<uint64_t>(std::max<int64_t>(1, table)))));
    const Result<LiteralResult> made = run_literally(*literal, {text}, evaluator);
    if (!made.is_ok()) return made.status().with_context("the literal graph");
    const std::vector<double> rows = made->rows.to_f64();
    wanted.emplace_back(rows.begin(), rows.end());
    v->tokens += std::ssize(text);
  }
  for (const Ids& text : ids) texts.push_back({text, {}});
  SITU_RETURN_IF_ERROR(m.embedder->run_texts(texts, {}, [&](size_t text, std::span<const float> rows) {
    comparison.add(wanted[text], rows);
    return Status::ok();
  }));
  v->prompts = prompts;
  return Status::ok();
}

}  // namespace

bool Verification::agrees() const { return status.is_ok() && largest_difference <= kSame * largest_logit; }

Verification verify_model(const std::string& path, const LoadOptions& options, int64_t prompts) {
  Verification v;
  LoadOptions of_placed = options, of_literal = options;
  of_placed.pack_cache = of_literal.pack_cache = false;
  of_literal.naive = true;
  const LoadPurpose floats{.dry = false, .float_activations = true};
  Result<Model> placed = load_model(path, of_placed, floats);
  v.status = placed.status();
  if (!v.status.is_ok()) return v;
  if (!placed->generates()) {
    v.status = verify_texts(*placed, prompts, &v);
    return v;
  }
  Result<Model> literal = load_model(path, of_literal, floats);
  v.status = literal.status().with_context("the literal graph");
  if (v.status.is_ok()) v.status = Verifier(*literal, *placed, &v).run(prompts);
  return v;
}

}  // namespace situ
