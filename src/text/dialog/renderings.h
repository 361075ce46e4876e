// Made-up conversations for a template, and the parts of what it renders.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/dialog/find_form.h"
#include "text/dialog/tool.h"

namespace situ::probe {

using Json = nlohmann::ordered_json;

// Texts that stand in no template.
inline constexpr std::string_view kUser = "zquser", kText = "zqtext", kThought = "zqthought", kResult = "zqresult",
                                  kSystem = "zqsystem~", kId = "zqid00001", kOtherId = "zqid00002";
inline constexpr std::string_view kNames[] = {"zqnamea", "zqnameb"}, kKeys[] = {"zqkeya", "zqkeyb"},
                                  kValues[] = {"zqvala", "zqvalb"};

struct Call {
  std::string name;
  Json arguments;
  std::string id = {};
};

// What of a history is to be tried.
struct CallStyle {
  bool arguments_as_text = false;
  Form::Ids ids = Form::Ids::kAny;
  bool null_content = false;
};

Json user();
Json answer(std::string_view text);
// An answer with these calls; ids as the style wants them, where they are not given.
Json answer(std::string_view text, const std::vector<Call>& calls, const CallStyle& style);
// Tools with the names of the probe, whose arguments are texts, and others of the verification.
std::vector<Tool> tools();
Json variables_with_tools();

// A template, which may refuse what it is asked: no value.
class Renderer {
 public:
  explicit Renderer(const RenderChat& render) : render_(render) {}
  std::optional<std::string> operator()(const Json& messages, bool prompt = false,
                                        const Json& variables = Json::object()) const;

 private:
  const RenderChat& render_;
};

// What two renderings have in common at their beginnings and ends, in bytes: whole marks (<...>, [...]) only.
struct Common {
  size_t before = 0, behind = 0;
};
Common common(std::string_view a, std::string_view b);
// The longest common beginning and end of texts between marks, of whole marks.
std::string common_beginning(std::string_view a, std::string_view b);
std::string common_end(std::string_view a, std::string_view b);

bool has(std::string_view text, std::string_view part);

}  // namespace situ::probe
