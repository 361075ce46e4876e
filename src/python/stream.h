// A request as an object of Python: its tokens as they come.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <thread>

#include "python/attended.h"
#include "python/model_handle.h"
#include "python/wakeups.h"

namespace situ::python {

// Destroyed with the GIL held.
class PythonStream {
 public:
  // Asks for the answer. What the model refuses is the error of whoever asks for tokens; where as many requests wait as
  // may, it is asked again later.
  PythonStream(std::shared_ptr<ModelHandle> model, Request request)
      : model_(std::move(model)), request_(std::make_unique<Request>(std::move(request))) {
    ask();
  }
  ~PythonStream() {
    if (!model_->in_this_process()) static_cast<void>(ticket_.release());
  }
  PythonStream(const PythonStream&) = delete;
  PythonStream& operator=(const PythonStream&) = delete;

  // Whether the model has not taken the request yet. Needs the GIL, as all that follows.
  bool waits() {
    if (request_ && !closed_) ask();
    return request_ != nullptr && !closed_;
  }
  // Waits for the next token, while signal handlers run; none: there are no more.
  std::optional<Event> next() {
    while (!closed_ && (waits() || !ticket().ended())) {
      std::optional<Event> token;
      {
        Ticket* const asked = ticket_.get();  // another thread may ask meanwhile
        const NoGil no_gil;
        if (!asked)
          std::this_thread::sleep_for(kRoom);
        else
          token = asked->next(kSignals);
      }
      if (closed_) break;
      if (token && token->is_shown()) return token;
      if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
    }
    return std::nullopt;
  }
  // Waits for the end, while signal handlers run.
  Result<Generation> wait() {
    for (bool over = false; !over && refused_.is_ok();) {
      const bool waiting = waits();
      if (!refused_.is_ok()) break;
      {
        const NoGil no_gil;
        if (waiting)
          std::this_thread::sleep_for(kRoom);
        else
          over = ticket_->wait(kSignals);
      }
      if (!over && PyErr_CheckSignals() != 0) throw nanobind::python_error();
    }
    return *result();
  }
  // The same as next() without waiting.
  std::optional<Event> poll() {
    while (!closed_ && !waits())
      if (std::optional<Event> event = ticket().poll(); !event || event->is_shown()) return event;
    return std::nullopt;
  }
  bool ended() { return closed_ || !refused_.is_ok() || (!request_ && ticket().ended()); }
  // Adds `number` whenever there is something to poll() for; null: to none any more.
  void notify(std::shared_ptr<Wakeups> wakeups, uint64_t number) {
    wakeups_ = std::move(wakeups);
    number_ = number;
    if (ticket_) listen();
  }
  // Ends the request, and waits for that: as long as the step that runs takes.
  void close() {
    model_->check_process();
    closed_ = true;
    if (!ticket_) return;
    ticket_->cancel();
    const NoGil no_gil;
    static_cast<void>(ticket_->result());
  }
  // What came of it, once it has ended.
  std::optional<Result<Generation>> result() {
    if (!refused_.is_ok()) return Result<Generation>(refused_);
    if (!ticket_ && closed_) {
      Generation nothing;
      nothing.finish_reason = FinishReason::kCancelled;
      return Result<Generation>(std::move(nothing));
    }
    if (!ticket_ || (!closed_ && !ticket().wait(std::chrono::milliseconds(0)))) return std::nullopt;
    model_->check_process();
    const NoGil no_gil;
    return ticket_->result();
  }

 private:
  static constexpr std::chrono::milliseconds kRoom{5};  // until the model is asked again

  void ask() {
    Result<Ticket> ticket = model_->apart([&](Model& m) { return m.submit(*request_); });
    if (!ticket.is_ok() && ticket.status().code() == Code::kBusy) return;
    request_.reset();
    if (!ticket.is_ok()) {
      refused_ = ticket.status();
      return;
    }
    ticket_ = std::make_unique<Ticket>(std::move(*ticket));
    if (wakeups_) listen();
  }
  void listen() {
    model_->check_process();
    const NoGil no_gil;  // the former callback waits for nobody, but may hold the last of something
    if (!wakeups_) return ticket_->on_ready(nullptr);
    ticket_->on_ready([wakeups = wakeups_, number = number_] { wakeups->add(number); });
  }
  // Raises SituError in a fork, and what refused the request.
  Ticket& ticket() {
    model_->check_process();
    if (!refused_.is_ok()) raise_error(refused_.message(), refused_.code());
    return *ticket_;
  }

  const std::shared_ptr<ModelHandle> model_;
  std::unique_ptr<Request> request_;  // that the model has not taken
  std::unique_ptr<Ticket> ticket_;
  Status refused_;
  std::shared_ptr<Wakeups> wakeups_;
  uint64_t number_ = 0;
  bool closed_ = false;
};

}  // namespace situ::python
