// Why a call is refused, as the check that finds it says it: without a status, JSON or protocol. The protocol of the
// call's path makes words of it (Protocol::error).
#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace situ::serve {

struct Refusal {
  enum class Kind {
    kInvalid,      // a value out of its range, or two that do not go together
    kType,         // a value of another type
    kMissing,      // a field that must be there
    kUnknown,      // a name that no body has, where the rules are strict
    kUnsupported,  // what is asked for is not done here
    kByModel,      // this model cannot do it
    kLimit,        // more than a limit of the server
    kNoJson,       // a body that is no JSON object
    kEmpty,        // no body
    kContext,      // more tokens than the context holds
    kNoModel,      // there is no model of that name
    kWhichModel,   // several models are there, and none is named
    kNoPath,       // there is no such path
    kMethod,       // the path takes another method
    kKey,          // no key, or one that is not known
    kForbidden,    // who asks may not
    kHost,         // a Host that is not the server's
    kHttp,         // a request that breaks HTTP: `status`
    kBusy,         // as much is asked for as may be: later there is room
    kNoRoom,       // there is no memory for an answer: later there may be
    kLoading,      // the models are not there yet
    kStopping,     // the server ends
    kFailed,       // the model cannot compute it
    kServer,       // an error of the server
    kDuplicate,    // an earlier line of a batch has the same custom_id
  };
  Kind kind = Kind::kInvalid;
  std::string option = {};  // the field that is wrong, "messages[0].role"; "": none is
  std::string message = {};
  int status = 0;                // kHttp: HTTP's own
  int64_t tokens = 0, most = 0;  // kContext, where they are known: of the prompt, and of the context
};

template <typename T>
using OrRefusal = std::variant<T, Refusal>;

}  // namespace situ::serve
