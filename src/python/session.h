// A situ::Session that keeps its model alive.
#pragma once

#include <nanobind/ndarray.h>

#include <memory>
#include <span>
#include <vector>

#include "python/attended.h"
#include "python/logits_place.h"

namespace situ::python {

using Logits = nanobind::ndarray<nanobind::numpy, const float, nanobind::ndim<1>, nanobind::c_contig>;

class PythonSession {
 public:
  PythonSession(std::shared_ptr<ModelHandle> model, Session session)
      : model_(std::move(model)), session_(std::make_unique<Session>(std::move(session))) {}
  // Gives the slots of its tokens back to the model.
  ~PythonSession() {
    const NoGil no_gil;
    if (!model_->in_this_process()) {
      static_cast<void>(session_.release());
      return;
    }
    session_.reset();
  }
  PythonSession(const PythonSession&) = delete;
  PythonSession& operator=(const PythonSession&) = delete;

  // [vocabulary].
  Logits step(const std::vector<int64_t>& tokens) {
    const LogitsRow::Rows rows = LogitsRow::for_step({row_}, model_->vocabulary());
    return show(value_or_raise(attended(
                    *model_, [&](Model&) { return session_->step(tokens, LogitsRow::place_of(rows)); }, tokens.size())),
                rows[0]);
  }
  // An array of the logits of a step, which are then those of the last one. Its owner holds their row, not the session
  // or the model.
  Logits show(std::span<const float> logits, std::shared_ptr<LogitsRow> row) {
    logits_ = logits.data();
    row_ = row;
    nanobind::capsule owner(new std::shared_ptr<LogitsRow>(std::move(row)),
                            [](void* p) noexcept { delete static_cast<std::shared_ptr<LogitsRow>*>(p); });
    return Logits(logits.data(), {logits.size()}, owner);
  }
  void rewind(int64_t length) {
    const Status done = model_->apart([&](Model&) { return session_->rewind(length); });
    if (!done.is_ok()) raise_error(done.message(), done.code());
  }
  std::unique_ptr<PythonSession> fork() {
    return std::make_unique<PythonSession>(model_,
                                           value_or_raise(model_->apart([&](Model&) { return session_->fork(); })));
  }
  int64_t length() {
    return model_->apart([&](Model&) { return session_->length(); });
  }

  Session& session() { return *session_; }
  const float* logits() const { return logits_; }
  const std::shared_ptr<LogitsRow>& row() const { return row_; }
  const std::shared_ptr<ModelHandle>& model() const { return model_; }

 private:
  std::shared_ptr<ModelHandle> model_;
  std::unique_ptr<Session> session_;
  const float* logits_ = nullptr;   // of the last step
  std::shared_ptr<LogitsRow> row_;  // that they are in
};

}  // namespace situ::python
