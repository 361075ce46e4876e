// The body of one call: from its name to the end of its arguments. One class a spelling; AnswerReader reads the marks
// around it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "text/dialog/events_out.h"
#include "text/dialog/form.h"
#include "text/dialog/tool.h"

namespace situ {

constexpr size_t kMostKey = 256;  // bytes of the key of an argument

// A text that still comes in: what was not read of it, and whether more can come.
struct Rest {
  std::string_view text;
  bool last = false;
};

class CallReader {
 public:
  enum class State {
    kMore,    // wants more text than there is
    kGoesOn,  // read something; asks again
    kDone,    // the call is whole: its end was sent
    kFault,   // it is no call
  };
  virtual ~CallReader() = default;
  // Reads a part of the text, whose bytes it counts in `used`; how the text is cut makes no difference. A fault before
  // begun() has sent nothing.
  virtual State read(Rest rest, size_t& used, EventsOut& out) = 0;
  bool begun() const { return begun_; }

  // `form` and `tools` must outlive it. Of a bare form only the tools' names begin a call. `at_end`: an object may be
  // another text up to its end: it begins there if it is a call of a tool that takes its arguments.
  static std::unique_ptr<CallReader> make(const CallForm& form, std::span<const Tool> tools, bool at_end = false);

 protected:
  void begin(EventsOut& out, std::string name) {
    begun_ = true;
    out.begin_call(std::move(name));
  }

 private:
  bool begun_ = false;
};

// A call in an object of JSON.
std::unique_ptr<CallReader> object_call_reader(const CallForm& form, std::span<const Tool> tools, bool at_end);
// A name, then arguments that a LiteralScanner reads.
std::unique_ptr<CallReader> named_call_reader(const CallForm& form, std::span<const Tool> tools);
// A name, then tags for each argument.
std::unique_ptr<CallReader> tagged_call_reader(const CallForm& form, std::span<const Tool> tools);

// Whether readers see this key of an argument where it stands without quotes: in a call of Python, in braces of a
// model's own.
bool bare_key_reads(std::string_view key, bool python);
// The same between the tags of a form.
bool tagged_key_reads(const CallForm& form, std::string_view key);

// How many bytes at the beginning can stand in a name of a tool.
size_t name_size(std::string_view text);

}  // namespace situ
