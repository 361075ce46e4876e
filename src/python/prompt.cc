#include "python/prompt.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

namespace nb = nanobind;
using namespace nb::literals;

namespace situ::python {
namespace {

using Array = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

std::string bytes_of(nb::handle value) {
  const nb::bytes bytes = nb::cast<nb::bytes>(value);
  return {static_cast<const char*>(bytes.data()), bytes.size()};
}

Part::Type type_of(const Array& array) {
  const std::pair<nb::dlpack::dtype, Part::Type> known[] = {{nb::dtype<bool>(), Part::Type::kBool},
                                                            {nb::dtype<uint8_t>(), Part::Type::kUint8},
                                                            {nb::dtype<int32_t>(), Part::Type::kInt32},
                                                            {nb::dtype<int64_t>(), Part::Type::kInt64},
                                                            {nb::dtype<float>(), Part::Type::kFloat32}};
  for (const auto& [dtype, type] : known)
    if (array.dtype() == dtype) return type;
  if (array.dtype().code == static_cast<uint8_t>(nb::dlpack::dtype_code::Float) && array.dtype().bits == 16)
    return Part::Type::kFloat16;
  throw nb::type_error("an array has bool, uint8, int32, int64, float16 or float32");
}

// Elements of an encoder's input are copied: the part lives as long as the request, of which the last owner may be a
// thread without Python's lock. Images and sounds are read before the call returns.
Part array_part(Part::Kind kind, const std::string& name, const Array& array) {
  std::vector<int64_t> shape;
  for (size_t i = 0; i < array.ndim(); ++i) shape.push_back(static_cast<int64_t>(array.shape(i)));
  const auto* const begin = static_cast<const uint8_t*>(array.data());
  if (kind != Part::Kind::kArray)
    return Part::of_array(kind, name, type_of(array), std::move(shape), Part::borrowed(begin));
  const auto held = std::make_shared<const std::vector<uint8_t>>(begin, begin + array.nbytes());
  return Part::of_array(kind, name, type_of(array), std::move(shape), {held, held->data()});
}

// ("text", str), ("ids", list), ("array", name, array); ("image" or "audio", "path", bytes), (.., "bytes", bytes) or
// (.., "array", array).
Part part_of(nb::handle given) {
  const nb::tuple tuple = nb::cast<nb::tuple>(given);
  const std::string kind = nb::cast<std::string>(tuple[0]);
  if (kind == "text") return Part::of_text(nb::cast<std::string>(tuple[1]));
  if (kind == "ids") return Part::of_ids(nb::cast<std::vector<int64_t>>(tuple[1]));
  if (kind == "array")
    return array_part(Part::Kind::kArray, nb::cast<std::string>(tuple[1]), nb::cast<Array>(tuple[2]));
  const Part::Kind medium = kind == "image" ? Part::Kind::kImage : Part::Kind::kAudio;
  const std::string from = nb::cast<std::string>(tuple[1]);
  if (from == "array") return array_part(medium, "", nb::cast<Array>(tuple[2]));
  const std::string bytes = bytes_of(tuple[2]);
  return from == "path" ? Part::of_file(medium, bytes) : Part::of_bytes(medium, {bytes.begin(), bytes.end()});
}

std::string text_at(const nb::dict& dict, const char* name) {
  return dict.contains(name) ? nb::cast<std::string>(dict[name]) : std::string();
}

Message message_of(const nb::dict& given) {
  Message message{text_at(given, "role"), {}};
  for (const nb::handle part : nb::cast<nb::list>(given["parts"])) message.parts.push_back(part_of(part));
  message.name = text_at(given, "name");
  message.tool_call_id = text_at(given, "tool_call_id");
  message.reasoning = text_at(given, "reasoning");
  for (const nb::handle call : nb::cast<nb::list>(given["tool_calls"])) {
    const nb::tuple fields = nb::cast<nb::tuple>(call);
    message.tool_calls.push_back(
        {nb::cast<std::string>(fields[0]), nb::cast<std::string>(fields[1]), nb::cast<std::string>(fields[2])});
  }
  if (given.contains("parse_special")) message.parse_special = nb::cast<bool>(given["parse_special"]);
  return message;
}

Prompt prompt_of(const nb::dict& given) {
  Prompt prompt;
  std::tie(prompt.messages, prompt.chat) = conversation_of(given);
  for (const nb::handle part : nb::cast<nb::list>(given["parts"])) prompt.parts.push_back(part_of(part));
  prompt.decoder_ids = nb::cast<std::vector<int64_t>>(given["decoder_ids"]);
  prompt.parse_special = nb::cast<bool>(given["parse_special"]);
  prompt.is_conversation = nb::cast<bool>(given["is_conversation"]);
  return prompt;
}

nb::list media_of(const Prompt& prompt) {
  nb::list list;
  for (const MediaFacts& m : prompt.media)
    list.append(
        nb::make_tuple(m.kind == Part::Kind::kImage ? "image" : "audio", m.width, m.height, m.duration_s, m.tokens));
  return list;
}

}  // namespace

std::pair<std::vector<Message>, ChatOptions> conversation_of(const nb::dict& given) {
  std::vector<Message> messages;
  for (const nb::handle message : nb::cast<nb::list>(given["messages"]))
    messages.push_back(message_of(nb::cast<nb::dict>(message)));
  ChatOptions chat;
  chat.tools_json = nb::cast<std::string>(given["tools"]);
  chat.tool_choice = nb::cast<std::string>(given["tool_choice"]);
  chat.parallel_tool_calls = nb::cast<bool>(given["parallel_tool_calls"]);
  chat.variables_json = nb::cast<std::string>(given["variables"]);
  chat.add_generation_prompt = nb::cast<bool>(given["add_generation_prompt"]);
  chat.continue_last = nb::cast<bool>(given["continue_last"]);
  return {std::move(messages), std::move(chat)};
}

void bind_prompt(nb::class_<ModelHandle>& model, nb::module_& m) {
  nb::class_<Prompt>(m, "Prompt", "A prompt as the model reads it: ids and arrays.")
      .def_prop_ro("ids", [](const Prompt& prompt) { return prompt.ids(); })
      .def_prop_ro("is_conversation", [](const Prompt& prompt) { return prompt.is_conversation; })
      .def_prop_ro("media", &media_of, nb::sig("def media(self) -> list[tuple[str, int, int, float, int]]"));
  model.def(
      "read",
      [](ModelHandle& self, const nb::dict& given) {
        Prompt prompt = prompt_of(given);
        return value_or_raise(self.apart([&](Model& of) { return of.read(std::move(prompt)); }));
      },
      "prompt"_a, nb::sig("def read(self, prompt: dict[str, typing.Any]) -> Prompt"));
}

}  // namespace situ::python
