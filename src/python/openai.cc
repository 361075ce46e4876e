#include "python/openai.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "situ/tools.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace situ::python {
namespace {

// Destroyed with the GIL held.
class PythonAnswer {
 public:
  PythonAnswer(std::shared_ptr<ModelHandle> model, const std::string& url, const nb::bytes& body,
               const std::string& name)
      : model_(std::move(model)) {
    const std::string text(body.c_str(), body.size());
    answer_ = model_->apart([&](Model& m) { return std::make_unique<OpenAiAnswer>(m, url, text, name); });
  }
  ~PythonAnswer() {
    if (!model_->in_this_process()) {
      static_cast<void>(answer_.release());
      return;
    }
    const NoGil no_gil;
    answer_.reset();
  }
  PythonAnswer(const PythonAnswer&) = delete;
  PythonAnswer& operator=(const PythonAnswer&) = delete;

  // Waits for the next piece, or the whole answer, while signal handlers run; None: there are no more. Needs the GIL.
  nb::object next() {
    constexpr std::chrono::milliseconds kSignals{50};
    while (true) {
      model_->check_process();
      std::optional<std::string> piece;
      bool ended = false;
      {
        const NoGil no_gil;
        piece = answer_->next(kSignals);
        ended = answer_->ended();
      }
      if (piece) return nb::bytes(piece->data(), piece->size());
      if (ended) return nb::none();
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
  }
  int status() const { return answer_->status(); }
  bool streams() const { return answer_->streams(); }
  void close() {
    model_->check_process();
    const NoGil no_gil;
    answer_->cancel();
  }

 private:
  std::shared_ptr<ModelHandle> model_;
  std::unique_ptr<OpenAiAnswer> answer_;
};

}  // namespace

void bind_openai(nb::module_& m) {
  nb::class_<PythonAnswer>(m, "OpenAiAnswer", "The C++ side of situ.openai.")
      .def(nb::init<std::shared_ptr<ModelHandle>, const std::string&, const nb::bytes&, const std::string&>(),
           "model"_a, "url"_a, "body"_a, "name"_a)
      .def("next", &PythonAnswer::next, nb::sig("def next(self) -> bytes | None"))
      .def("status", &PythonAnswer::status)
      .def("streams", &PythonAnswer::streams)
      .def("close", &PythonAnswer::close);
}

}  // namespace situ::python
