// A request as an object of Python: its tokens as they come.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "python/attended.h"
#include "python/model_handle.h"

namespace situ::python {

// Destroyed with the GIL held.
class PythonStream {
 public:
  // `ticket`: or the error, which whoever asks for tokens gets.
  PythonStream(std::shared_ptr<ModelHandle> model, Result<Ticket> ticket) : model_(std::move(model)) {
    if (ticket.is_ok())
      ticket_ = std::make_unique<Ticket>(std::move(*ticket));
    else
      refused_ = ticket.status();
  }
  ~PythonStream() {
    if (!model_->in_this_process()) static_cast<void>(ticket_.release());
  }
  PythonStream(const PythonStream&) = delete;
  PythonStream& operator=(const PythonStream&) = delete;

  // Waits for the next token, while signal handlers run; none: there are no more. Needs the GIL.
  std::optional<Event> next() {
    while (!closed_ && !ticket().ended()) {
      std::optional<Event> token;
      {
        nanobind::gil_scoped_release no_gil;
        token = ticket_->next(kSignals);
      }
      if (closed_) break;
      if (token && is_shown(*token)) return token;
      if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
    }
    return std::nullopt;
  }
  // Waits for the end, while signal handlers run. Needs the GIL.
  Result<Generation> wait() {
    for (bool over = !refused_.is_ok(); !over;) {
      {
        nanobind::gil_scoped_release no_gil;
        over = ticket_->wait(kSignals);
      }
      if (!over && PyErr_CheckSignals() != 0) throw nanobind::python_error();
    }
    return *result();
  }
  // The same without waiting.
  std::optional<Event> poll() {
    while (!closed_)
      if (std::optional<Event> event = ticket().poll(); !event || is_shown(*event)) return event;
    return std::nullopt;
  }
  bool ended() { return closed_ || !refused_.is_ok() || ticket().ended(); }
  // Writes 1 to an eventfd whenever there is something to poll() for; -1: to none any more.
  void notify(int event) {
    if (!refused_.is_ok()) return;
    if (event < 0) return ticket().on_ready(nullptr);
    ticket().on_ready([event] {
      const uint64_t one = 1;
      static_cast<void>(!write(event, &one, sizeof(one)));
    });
  }
  // Ends the request, and waits for that: as long as the step that runs takes.
  void close() {
    closed_ = true;
    if (!refused_.is_ok()) return;
    ticket().cancel();
    nanobind::gil_scoped_release no_gil;
    static_cast<void>(ticket_->result());
  }
  // What came of it, once it has ended.
  std::optional<Result<Generation>> result() {
    if (!refused_.is_ok()) return Result<Generation>(refused_);
    if (!closed_ && !ticket().wait(std::chrono::milliseconds(0))) return std::nullopt;
    nanobind::gil_scoped_release no_gil;
    return ticket_->result();
  }

 private:
  // Not an end alone.
  static bool is_shown(const Event& event) { return event.id >= 0 || !event.text.empty(); }
  // Raises SituError in a fork, and what refused the request.
  Ticket& ticket() {
    model_->check_process();
    if (!refused_.is_ok()) raise_error(refused_.message(), refused_.code());
    return *ticket_;
  }

  const std::shared_ptr<ModelHandle> model_;
  std::unique_ptr<Ticket> ticket_;
  Status refused_;
  bool closed_ = false;
};

}  // namespace situ::python
