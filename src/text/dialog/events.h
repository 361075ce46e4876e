// What an answer of a conversation says, piece by piece, whatever the model's own spelling and the client's protocol:
// `dialog` makes these events of the text that a model writes, a protocol writes bytes of them.
#pragma once

#include <cstddef>
#include <string>
#include <variant>

namespace situ {

struct ReasoningPiece {
  std::string text;  // UTF-8, whole characters
};

struct TextPiece {
  std::string text;  // UTF-8, whole characters
};

// A call of a tool begins; its name is whole and is sent once.
struct CallBegun {
  std::size_t index = 0;  // 0, 1, ... within the answer
  std::string name;
};

// The next bytes of a call's arguments. Joined they are the JSON text of one object, however the model spells it.
struct ArgumentsPiece {
  std::size_t index = 0;
  std::string json;
};

// A call is whole: its arguments are valid JSON. An answer that is cut inside a call has no such event for it.
struct CallEnded {
  std::size_t index = 0;
};

using DialogEvent = std::variant<ReasoningPiece, TextPiece, CallBegun, ArgumentsPiece, CallEnded>;

}  // namespace situ
