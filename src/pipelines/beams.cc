#include "pipelines/beams.h"

#include <algorithm>
#include <utility>

#include "generate/bans.h"
#include "generate/greedy.h"

namespace situ {

BeamDecoder::BeamDecoder(Model::Impl& model, Session prompt, Sampler sampler, BeamOptions options, bool renormalised)
    : model_(model),
      search_(std::move(options)),
      renormalised_(renormalised),
      log_probabilities_(static_cast<size_t>(model.vocabulary)) {
  branches_.push_back({std::move(prompt), std::move(sampler)});
}

// Penalties and bans change log-probabilities, not logits, and nothing makes them probabilities again: as in
// transformers. Renormalised: they change logits.
Status BeamDecoder::offer(size_t beam, std::span<const float> logits) {
  Sampler& sampler = branches_[beam].sampler;
  SITU_RETURN_IF_ERROR(
      sampler.not_a_number(largest_logit(logits).not_a_number).with_context(model_.folder.model_file.string()));
  std::span<const float> offered;
  if (renormalised_) {
    offered = sampler.scores(logits);
    if (std::any_of(offered.begin(), offered.end(), [](float x) { return x > kBanned; })) {
      log_softmax(offered, log_probabilities_);
      offered = log_probabilities_;
    }
  } else {
    log_softmax(logits, log_probabilities_);
    offered = sampler.scores(log_probabilities_);
  }
  search_.offer(beam, offered, [&](int64_t id) { return sampler.has(id); });
  return Status::ok();
}

// Where no beam can go on, the beams stay what they are.
Status BeamDecoder::advance() {
  if (search_.at_a_loss())
    return branches_.front().sampler.nothing_left().with_context(model_.folder.model_file.string());
  search_.advance();
  return Status::ok();
}

// A branch for each running beam. The last that goes on from a parent takes its session, the others fork it.
Status BeamDecoder::branch() {
  const std::vector<BeamSearch::Beam>& beams = search_.running();
  std::vector<Branch> next;
  next.reserve(beams.size());
  for (size_t i = 0; i < beams.size(); ++i) {
    Branch& parent = branches_[static_cast<size_t>(beams[i].parent)];
    bool last = true;
    for (size_t j = i + 1; j < beams.size(); ++j) last = last && beams[j].parent != beams[i].parent;
    if (last) {
      next.push_back(std::move(parent));
    } else {
      Result<Session> fork = parent.session.fork();
      if (!fork.is_ok()) return fork.status();
      next.push_back({std::move(*fork), parent.sampler});
    }
  }
  branches_ = std::move(next);
  return Status::ok();
}

Status BeamDecoder::run(std::span<const float> logits) {
  // Every group begins with the prompt.
  SITU_RETURN_IF_ERROR(branch());
  for (size_t i = 0; i < branches_.size(); ++i) SITU_RETURN_IF_ERROR(offer(i, logits));
  for (;;) {
    SITU_RETURN_IF_ERROR(advance());
    if (search_.running().empty()) return Status::ok();
    SITU_RETURN_IF_ERROR(branch());
    std::vector<Model::Impl::Feed> feeds;
    for (size_t i = 0; i < branches_.size(); ++i) {
      const int64_t& id = search_.running()[i].ids.back();
      branches_[i].sampler.append(id);
      feeds.push_back({&impl_of(branches_[i].session), {&id, 1}});
    }
    SITU_RETURN_IF_ERROR(model_.step_all(feeds, [&](size_t i, std::span<const float> next) { return offer(i, next); }));
    ++steps_;
  }
}

}  // namespace situ
