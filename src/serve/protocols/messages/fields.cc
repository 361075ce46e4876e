// Fields of the bodies of Messages, and how each is read.
#include <algorithm>
#include <limits>

#include "serve/protocols/messages/messages.h"
#include "serve/tools.h"
#include "text/json_file.h"

namespace situ::serve {
namespace {

using Use = BodyField::Use;
using O = GenerateOptions;
constexpr int kEach = kMessages | kCountTokens;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

void read_most(BodyReader& r, const char* name, const Json& value) {
  const std::optional<int64_t> given = r.integer(name, value, 1, INT64_MAX);
  if (!given) return;
  r.ask.options.max_new_tokens = std::min(*given, kMostTokens);
  r.says("max_new_tokens", name);
}

void read_stops(BodyReader& r, const char* name, const Json& value) {
  if (!value.is_array()) return r.refuse_type(name, value, "a list of strings");
  for (const Json& text : value) {
    if (!text.is_string()) return r.refuse_type(name, text, "a list of strings");
    if (text.get_ref<const std::string&>().empty())
      return r.refuse(name, std::string(name) + ": a stop string is empty");
    r.ask.options.stop.push_back(text.get<std::string>());
  }
  r.says("stop", name);
}

void read_top_p(BodyReader& r, const char* name, const Json& value) {
  if (const std::optional<double> x = r.number(name, value, -kInfinity, kInfinity)) r.ask.options.top_p = *x;
}

// {"type": "enabled" | "adaptive" | "disabled"}; how long a model thinks nobody can say.
void read_thinking(BodyReader& r, const char* name, const Json& value) {
  const Json type = value.is_object() ? value.value("type", Json()) : Json();
  if (type != "enabled" && type != "adaptive" && type != "disabled")
    return r.refuse(std::string(name) + ".type", "thinking.type should be enabled, adaptive or disabled, is " +
                                                     shown(value.is_object() ? type : value));
  r.ignore_others(value, name, {"type", "budget_tokens", "display"});
  r.ask.shows_reasoning = type != "disabled" && value.value("display", Json()) != "omitted";
  if (type != "disabled" && r.form() && !r.form()->form.reasons()) r.ask.ignored.add(name);
}

// {"format": {"type": "json_schema", "schema"}, "effort"}
void read_output(BodyReader& r, const char* name, const Json& value) {
  if (!value.is_object()) return r.refuse_type(name, value, "an object");
  r.ignore_others(value, name, {"format", "effort"});
  if (!value.value("effort", Json()).is_null() && !r.template_reads("reasoning_effort"))
    r.ask.ignored.add(std::string(name) + ".effort");
  const Json format = value.value("format", Json());
  if (format.is_null()) return;
  const std::string here = std::string(name) + ".format";
  const Json schema = format.is_object() ? format.value("schema", Json()) : Json();
  if (!format.is_object() || format.value("type", Json()) != "json_schema")
    return r.refuse(here + ".type", here + ".type should be json_schema, is " + shown(format));
  if (!schema.is_object()) return r.refuse_type(here + ".schema", schema, "a JSON schema");
  r.ask.options.json_schema = json_text(schema);
  r.says("json_schema", name);
}

void read_tools(BodyReader& r, const char* name, const Json& value) {
  if (!value.is_array()) return r.refuse_type(name, value, "a list of tools");
  for (size_t i = 0; i < value.size() && !r.refusal; ++i) {
    const std::string here = std::string(name) + "[" + std::to_string(i) + "]";
    const Json& tool = value[i];
    if (!tool.is_object()) return r.refuse_type(here, tool, "an object");
    const Json type = tool.value("type", Json());
    // Tools of a server, which have no schema: nothing here carries them out.
    if (!type.is_null() && type != "custom" && tool.value("input_schema", Json()).is_null()) {
      r.ask.ignored.add(here);
      continue;
    }
    read_tool(r, here, tool, "input_schema");
  }
}

void read_choice(BodyReader& r, const char* name, const Json& value) {
  if (!value.is_object()) return r.refuse_type(name, value, "an object");
  r.ignore_others(value, name, {"type", "name", "disable_parallel_tool_use"});
  const Json type = value.value("type", Json()), one = value.value("disable_parallel_tool_use", Json());
  using Kind = ToolChoice::Kind;
  ToolChoice& choice = r.ask.tool_choice;
  if (type != "auto" && type != "any" && type != "tool" && type != "none")
    return r.refuse(std::string(name) + ".type",
                    "tool_choice.type should be auto, any, tool or none, is " + shown(type));
  choice.kind = type == "auto"   ? Kind::kAuto
                : type == "any"  ? Kind::kRequired
                : type == "tool" ? Kind::kNamed
                                 : Kind::kNone;
  if (!one.is_null())
    if (const std::optional<bool> wanted = r.boolean(std::string(name) + ".disable_parallel_tool_use", one))
      choice.parallel = !*wanted;
  if (type != "tool") return;
  if (std::optional<std::string> called = r.string(std::string(name) + ".name", value.value("name", Json())))
    choice.name = std::move(*called);
}

constexpr const char *kString = R"({"type":"string"})", *kBool = R"({"type":"boolean"})",
                     *kObject = R"({"type":"object"})", *kList = R"({"type":"array","items":{"type":"object"}})",
                     *kRatio = R"({"type":"number","minimum":0,"maximum":1})",
                     *kTexts = R"({"type":"array","items":{"type":"string"}})";

constexpr BodyField without_effect(const char* name, int routes = kEach) {
  return {name, routes, Use::kAccepted, "{}", ""};
}

constexpr BodyField kFields[] = {
    {"model", kEach, Use::kUsed, kString, "The model's name, as the answer has it too", read_model},
    {"max_tokens", kMessages, Use::kOption, R"({"type":"integer","minimum":1})", "Most tokens of the answer",
     read_most},
    {"system", kEach, Use::kUsed, R"({"oneOf":[{"type":"string"},{"type":"array"}]})",
     "A text, or blocks of text, which are joined by an empty line", read_later},
    {"messages", kEach, Use::kUsed, R"({"type":"array","items":{"type":"object"},"minItems":1})",
     "The conversation: role (user, assistant) and content, a text or blocks of the types text, image (base64), "
     "tool_use, tool_result and thinking; an answer goes on with a last message of the assistant",
     read_later},
    {"stream", kMessages, Use::kUsed, kBool, "The answer as events", read_stream},
    {"stop_sequences", kMessages, Use::kOption, kTexts, "Texts that end the answer, and are not in it", read_stops},
    {"temperature", kMessages, Use::kOption, R"({"type":"number","minimum":0})",
     "0: the most probable token each time. Default: the model's files where they say do_sample, else 0",
     read_temperature},
    {"top_p", kMessages, Use::kOption, kRatio, "Only the most probable tokens that come to this probability are drawn",
     read_top_p},
    {"top_k", kMessages, Use::kOption, R"({"type":"integer","minimum":0,"maximum":1073741824})",
     "Only the k most probable tokens are drawn; 0: all", read_integer<&O::top_k, 0, kMostTokens>},
    {"tools", kEach, Use::kUsed, kList, "Functions that the answer may call: name, description, input_schema",
     read_tools},
    {"tool_choice", kEach, Use::kUsed, kObject, "auto, any, tool (with a name) or none; disable_parallel_tool_use",
     read_choice},
    {"thinking", kEach, Use::kUsed, kObject,
     "enabled or adaptive: the model thinks, where its chat template has a switch, and the answer shows it",
     read_thinking},
    {"output_config", kEach, Use::kOption, kObject, "format: json_schema with a schema that the answer follows",
     read_output},
    // Tokens are counted of the same body that asks for an answer.
    without_effect("max_tokens", kCountTokens),
    without_effect("stream", kCountTokens),
    without_effect("stop_sequences", kCountTokens),
    without_effect("temperature", kCountTokens),
    without_effect("top_p", kCountTokens),
    without_effect("top_k", kCountTokens),
    without_effect("metadata"),
    without_effect("service_tier"),
    without_effect("cache_control"),
    without_effect("inference_geo"),
    without_effect("speed"),
    without_effect("diagnostics"),
};

}  // namespace

std::span<const BodyField> messages_fields() { return kFields; }

}  // namespace situ::serve
