#include "speech/window_decoder.h"

#include <algorithm>
#include <cmath>

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

struct WindowDecoder::Started {
  Session session;
  const Window* window;
  std::vector<float> logits;  // after the prompt, [vocabulary]
  double no_speech_prob = 0;
};

Status WindowDecoder::read_first_row(Started& window, const PromptIds& prompt) {
  Result<Session> before = window.session.fork();
  if (!before.is_ok()) return before.status();
  const auto logits = before->step(std::span(prompt.ids).first(prompt.start_at + 1));
  if (!logits.is_ok()) return logits.status();
  read_.read(*logits);
  window.no_speech_prob = std::exp(read_.of(tokens_.no_speech));
  return Status::ok();
}

Status WindowDecoder::start_some(std::span<Started> windows, const PromptIds& prompt) {
  const auto rows = static_cast<int64_t>(prompt.ids.size() - prompt.start_at);
  const bool all_rows = model_.batch() >= rows;
  if (!all_rows)  // a step that gives one row: that of the first token by a step of its own
    for (Started& w : windows) SITU_RETURN_IF_ERROR(read_first_row(w, prompt));
  std::vector<Model::Impl::Feed> feeds;
  for (Started& w : windows) feeds.push_back({&impl_of(w.session), prompt.ids, all_rows ? rows : 1});
  size_t last = windows.size();
  return model_.step_all(feeds, [&](size_t i, std::span<const float> logits) {
    if (all_rows && i != last) {
      read_.read(logits);
      windows[i].no_speech_prob = std::exp(read_.of(tokens_.no_speech));
    }
    last = i;
    windows[i].logits.assign(logits.begin(), logits.end());
    return Status::ok();
  });
}

Result<std::vector<WindowDecoder::Started>> WindowDecoder::start(std::span<const Window> windows,
                                                                 const PromptIds& prompt) {
  std::vector<Started> started;
  for (const Window& w : windows) {
    Result<Session> session = w.source->fork();
    if (!session.is_ok()) return session.status();
    started.push_back({std::move(*session), &w, {}, 0});
  }
  const size_t rows = prompt.ids.size() - prompt.start_at,
               together = std::max<size_t>(1, static_cast<size_t>(model_.batch()) / rows);
  for (size_t from = 0; from < started.size(); from += together)
    SITU_RETURN_IF_ERROR(
        start_some(std::span(started).subspan(from, std::min(together, started.size() - from)), prompt));
  return started;
}

Result<std::vector<WindowText>> WindowDecoder::decode(std::span<const Window> windows, const PromptIds& prompt,
                                                      double temperature) {
  Result<std::vector<Started>> started = start(windows, prompt);
  if (!started.is_ok()) return started.status();
  // As many tokens as the reference allows: half the context, and no more than it holds.
  const int64_t context = model_.context_length,
                most = std::max<int64_t>(1, std::min(context / 2, context - static_cast<int64_t>(prompt.ids.size())));
  Result<std::vector<WindowText>> texts = std::vector<WindowText>();
  if (temperature <= 0 && options_.beams > 1) {
    for (Started& w : *started) {
      Result<WindowText> text = search(w, prompt, most);
      if (!text.is_ok()) return text.status();
      texts->push_back(std::move(*text));
    }
  } else {
    texts = choose(*started, prompt, temperature, most);
    if (!texts.is_ok()) return texts;
  }
  for (size_t i = 0; i < windows.size(); ++i) {
    (*texts)[i].no_speech_prob = (*started)[i].no_speech_prob;
    (*texts)[i].temperature = temperature;
  }
  return texts;
}

Result<WindowText> WindowDecoder::search(Started& window, const PromptIds& prompt, int64_t most) {
  BeamOptions beams;
  beams.beams = options_.beams;
  beams.length_penalty = options_.length_penalty;
  beams.patience = options_.patience;
  beams.early_stopping = EarlyStopping::kFirst;
  beams.max_new_tokens = most;
  beams.end_ids = {tokens_.end};
  BeamDecoder decoder(model_, std::move(window.session), Sampler(sampling(0, 0, most), prompt.ids, model_.vocabulary),
                      beams, true);
  SITU_RETURN_IF_ERROR(decoder.run(window.logits));
  const std::vector<BeamSearch::Answer> answers = decoder.answers();
  WindowText text;
  text.ids = answers[0].ids;
  text.log_probability = answers[0].log_probability;
  return text;
}

struct WindowDecoder::Branch {
  size_t window;
  Session session;
  Sampler sampler;
  WindowText text;
  bool ended = false;
};

// The branches of a window, the first one last: it needs no fork.
Status WindowDecoder::branch(Started& window, size_t of, const PromptIds& prompt, double temperature, int64_t most,
                             std::vector<Branch>& branches) {
  const auto count = static_cast<uint64_t>(temperature > 0 ? options_.best_of : 1);
  const auto add = [&](Session session, uint64_t i) {
    branches.push_back({of,
                        std::move(session),
                        Sampler(sampling(temperature, window.window->draw + i, most), prompt.ids, model_.vocabulary),
                        {}});
    return take(branches.back(), window.logits, most);
  };
  for (uint64_t i = 1; i < count; ++i) {
    Result<Session> fork = window.session.fork();
    if (!fork.is_ok()) return fork.status();
    SITU_RETURN_IF_ERROR(add(std::move(*fork), i));
  }
  return add(std::move(window.session), 0);
}

// Chooses the token that follows a branch.
Status WindowDecoder::take(Branch& b, std::span<const float> logits, int64_t most) {
  const Result<int64_t> id = b.sampler.choose(logits);
  if (!id.is_ok()) return id.status();
  read_.read(b.sampler.last_scores());
  b.text.log_probability += read_.of(*id);
  if (*id == tokens_.end) {
    b.ended = true;
    return Status::ok();
  }
  b.text.ids.push_back(*id);
  b.sampler.append(*id);
  b.ended = static_cast<int64_t>(b.text.ids.size()) >= most || b.session.length() >= model_.context_length;
  return Status::ok();
}

Result<std::vector<WindowText>> WindowDecoder::choose(std::span<Started> windows, const PromptIds& prompt,
                                                      double temperature, int64_t most) {
  std::vector<Branch> branches;
  for (size_t i = 0; i < windows.size(); ++i)
    SITU_RETURN_IF_ERROR(branch(windows[i], i, prompt, temperature, most, branches));
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
        model_.step_all(feeds, [&](size_t i, std::span<const float> logits) { return take(*of[i], logits, most); }));
  }
  std::vector<WindowText> texts(windows.size());
  std::vector<const Branch*> best(windows.size());
  for (const Branch& b : branches)
    if (!best[b.window] || best[b.window]->text.avg_logprob() < b.text.avg_logprob()) best[b.window] = &b;
  for (size_t i = 0; i < texts.size(); ++i) texts[i] = best[i]->text;
  return texts;
}

Result<WindowDecoder::FirstToken> WindowDecoder::first_token(const Session& source) {
  Result<Session> session = source.fork();
  if (!session.is_ok()) return session.status();
  const auto logits = session->step({&tokens_.start, 1});
  if (!logits.is_ok()) return logits.status();
  FirstToken first;
  auto& found = first.languages;
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const auto& [code, id] : tokens_.languages) {
    const float x = (*logits)[static_cast<size_t>(id)];
    found.emplace_back(code, x == x ? static_cast<double>(x) : -std::numeric_limits<double>::infinity());
    largest = std::max(largest, found.back().second);
  }
  for (auto& [code, p] : found) sum += p = std::exp(p - largest);
  for (auto& [code, p] : found) p /= sum;
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  read_.read(*logits);
  first.no_speech_prob = std::exp(read_.of(tokens_.no_speech));
  return first;
}

}  // namespace situ
