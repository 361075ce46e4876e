// A loaded model as the objects of Python share it. One rule: nobody waits for the model with the GIL.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "python/no_gil.h"
#include "situ/model.h"

namespace situ::python {

// Raises situ.SituError with the message and the code (attribute `code`, its name) of the C++ API. Needs the GIL.
[[noreturn]] void raise_error(const std::string& message, Code code = Code::kInvalidArgument);
// The same error as an object. Needs the GIL.
nanobind::object error_object(const Status& error);
// Its message, which may hold the name of a file in any bytes. Needs the GIL.
nanobind::object error_text(const std::string& message);

// The value, or its error raised. Needs the GIL.
template <typename T>
T value_or_raise(Result<T> result) {
  if (!result.is_ok()) raise_error(result.status().message(), result.status().code());
  return std::move(*result);
}

// Owner of the model. Destroyed with the GIL held.
class ModelHandle {
 public:
  explicit ModelHandle(Model model)
      : model_(std::make_unique<Model>(std::move(model))),
        vocabulary_(static_cast<size_t>(model_->facts().vocabulary)),
        process_(getpid()) {}
  ~ModelHandle() {
    const NoGil no_gil;
    // The threads of the model are not in a fork of its process, and ending them would wait for ever.
    if (in_this_process())
      model_.reset();
    else
      static_cast<void>(model_.release());
  }
  ModelHandle(const ModelHandle&) = delete;
  ModelHandle& operator=(const ModelHandle&) = delete;

  bool in_this_process() const { return getpid() == process_; }

  // Raises SituError in a fork of the process that loaded the model.
  void check_process() const {
    if (!in_this_process())
      raise_error("the model was loaded by process " + std::to_string(process_) +
                  ", of which this is a fork; load it in the process that uses it");
  }

  Model& model() { return *model_; }
  size_t vocabulary() const { return vocabulary_; }

  // Returns work(model), called without the GIL, which the end of the program ends. Needs the GIL.
  template <typename Work>
  auto apart(Work&& work) {
    check_process();
    const NoGil no_gil;
    const CallsOfThread end_with_program(ending());
    return work(*model_);
  }

 private:
  std::unique_ptr<Model> model_;
  const size_t vocabulary_;
  const pid_t process_;
};

// The models that are loaded, of which the program's end ends all requests.
std::shared_ptr<ModelHandle> share(Model model);
// For the program's end. Needs the GIL.
void end_program();

}  // namespace situ::python
