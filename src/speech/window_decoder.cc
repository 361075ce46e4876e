#include "speech/window_decoder.h"

#include <algorithm>
#include <cmath>

#include "generate/logprobs.h"
#include "pipelines/beams.h"
#include "speech/timestamp_rule.h"

namespace situ {

WindowDecoder::WindowDecoder(Model::Impl& model, const SpeechTokens& tokens, const WindowOptions& options)
    : model_(model), tokens_(tokens), options_(options) {
  if (options.timestamps) rule_ = std::make_shared<TimestampRule>(tokens);
}

SamplingOptions WindowDecoder::sampling(double temperature, uint64_t draw, int64_t most) const {
  SamplingOptions s;
  s.sample = temperature > 0;
  s.temperature = static_cast<float>(temperature);
  s.seed = options_.seed * 0x9e3779b97f4a7c15u + draw;
  s.end_ids = {tokens_.end};
  s.max_new_tokens = most;
  s.suppressed = tokens_.suppressed;
  s.suppressed_first = tokens_.suppressed_first;
  s.rule = rule_;
  return s;
}

Result<Session> WindowDecoder::start(const Session& source, const PromptIds& prompt, double* no_speech_prob) {
  const auto rows = static_cast<int64_t>(prompt.ids.size() - prompt.start_at);
  LogProbabilities read;
  const auto first_row = [&](std::span<const float> logits) {
    read.read(logits);
    *no_speech_prob = std::exp(read.of(tokens_.no_speech));
  };
  const bool all_rows = model_.batch() >= rows;
  if (!all_rows && rows > 1) {  // a step that gives one row: the others by one of their own
    Result<Session> before = source.fork();
    if (!before.is_ok()) return before;
    const auto logits = before->step(std::span(prompt.ids).first(prompt.start_at + 1));
    if (!logits.is_ok()) return logits.status();
    first_row(*logits);
  }
  Result<Session> session = source.fork();
  if (!session.is_ok()) return session;
  const Model::Impl::Feed feed{&impl_of(*session), prompt.ids, all_rows ? rows : 1};
  int64_t row = all_rows ? 0 : rows > 1 ? 1 : 0;
  SITU_RETURN_IF_ERROR(model_.step_all({&feed, 1}, [&](size_t, std::span<const float> logits) {
    if (row++ == 0) first_row(logits);
    prompt_logits_.assign(logits.begin(), logits.end());
    return Status::ok();
  }));
  return session;
}

Result<WindowText> WindowDecoder::decode(const Session& source, const PromptIds& prompt, double temperature,
                                         uint64_t draw) {
  double no_speech_prob = 0;
  Result<Session> session = start(source, prompt, &no_speech_prob);
  if (!session.is_ok()) return session.status();
  // As many tokens as the reference allows: half the context, and no more than it holds.
  const int64_t context = model_.context_length,
                most = std::max<int64_t>(1, std::min(context / 2, context - static_cast<int64_t>(prompt.ids.size())));
  Result<WindowText> text = temperature <= 0 && options_.beams > 1
                                ? search(std::move(*session), prompt, most)
                                : choose(std::move(*session), prompt, temperature, draw, most);
  if (!text.is_ok()) return text;
  text->no_speech_prob = no_speech_prob;
  text->temperature = temperature;
  return text;
}

Result<WindowText> WindowDecoder::search(Session session, const PromptIds& prompt, int64_t most) {
  BeamOptions beams;
  beams.beams = options_.beams;
  beams.length_penalty = options_.length_penalty;
  beams.patience = options_.patience;
  beams.early_stopping = EarlyStopping::kFirst;
  beams.max_new_tokens = most;
  beams.end_ids = {tokens_.end};
  BeamDecoder decoder(model_, std::move(session), Sampler(sampling(0, 0, most), prompt.ids, model_.vocabulary), beams,
                      true);
  SITU_RETURN_IF_ERROR(decoder.run(prompt_logits_));
  const std::vector<BeamSearch::Answer> answers = decoder.answers();
  if (answers.empty()) return decoder.nothing_left();
  WindowText text;
  text.ids = answers[0].ids;
  text.log_probability = answers[0].log_probability;
  return text;
}

struct WindowDecoder::Branch {
  Session session;
  Sampler sampler;
  WindowText text;
  bool ended = false;
};

Result<WindowText> WindowDecoder::choose(Session session, const PromptIds& prompt, double temperature, uint64_t draw,
                                         int64_t most) {
  const int64_t count = temperature > 0 ? options_.best_of : 1;
  std::vector<Branch> branches;
  for (int64_t i = 1; i < count; ++i) {
    Result<Session> fork = session.fork();
    if (!fork.is_ok()) return fork.status();
    branches.push_back(
        {std::move(*fork),
         Sampler(sampling(temperature, draw + static_cast<uint64_t>(i), most), prompt.ids, model_.vocabulary),
         {}});
  }
  branches.push_back(
      {std::move(session), Sampler(sampling(temperature, draw, most), prompt.ids, model_.vocabulary), {}});
  LogProbabilities read;
  const auto take = [&](Branch& b, std::span<const float> logits) {
    const Result<int64_t> id = b.sampler.choose(logits);
    if (!id.is_ok()) return id.status();
    read.read(b.sampler.last_scores());
    b.text.log_probability += read.of(*id);
    if (*id == tokens_.end) {
      b.ended = true;
      return Status::ok();
    }
    b.text.ids.push_back(*id);
    b.sampler.append(*id);
    b.ended = static_cast<int64_t>(b.text.ids.size()) >= most || b.session.length() >= model_.context_length;
    return Status::ok();
  };
  for (Branch& b : branches) SITU_RETURN_IF_ERROR(take(b, prompt_logits_));
  for (;;) {
    std::vector<Model::Impl::Feed> feeds;
    std::vector<Branch*> of;
    for (Branch& b : branches) {
      if (b.ended) continue;
      feeds.push_back({&impl_of(b.session), {&b.text.ids.back(), 1}});
      of.push_back(&b);
    }
    if (feeds.empty()) break;
    SITU_RETURN_IF_ERROR(
        model_.step_all(feeds, [&](size_t i, std::span<const float> logits) { return take(*of[i], logits); }));
  }
  return std::max_element(branches.begin(), branches.end(),
                          [](const Branch& a, const Branch& b) { return a.text.avg_logprob() < b.text.avg_logprob(); })
      ->text;
}

Result<std::vector<std::pair<std::string, double>>> WindowDecoder::languages(const Session& source) {
  Result<Session> session = source.fork();
  if (!session.is_ok()) return session.status();
  const auto logits = session->step({&tokens_.start, 1});
  if (!logits.is_ok()) return logits.status();
  std::vector<std::pair<std::string, double>> found;
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const auto& [code, id] : tokens_.languages) {
    const float x = (*logits)[static_cast<size_t>(id)];
    found.emplace_back(code, x == x ? static_cast<double>(x) : -std::numeric_limits<double>::infinity());
    largest = std::max(largest, found.back().second);
  }
  for (auto& [code, p] : found) sum += p = std::exp(p - largest);
  for (auto& [code, p] : found) p /= sum;
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return found;
}

}  // namespace situ
