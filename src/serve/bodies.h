// Bodies of OpenAI's chat and completions: from JSON to requests, and from answers and their tokens to JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serve/ignored.h"
#include "serve/refusal.h"
#include "situ/model.h"

namespace situ::serve {

using Json = nlohmann::ordered_json;

enum class Route { kChat = 1, kCompletions = 2 };
// By the path of its URL ("/v1/chat/completions"); none: it is another one.
std::optional<Route> route_of(std::string_view url);
const char* url_of(Route route);

class BodyReader;
// Fields of the two bodies: the parser is made of this table, and whoever describes the bodies reads it.
struct BodyField {
  // kUsed: what is asked for. kOption: how it is answered. kAccepted: no effect at any value. kRefused: no effect at
  // neutral values, refused at others, since another answer is asked for. kTemplate: a variable of the chat template,
  // without effect where the template does not read it.
  enum class Use { kUsed, kOption, kAccepted, kRefused, kTemplate };
  const char* name;
  int routes;  // Route::kChat | Route::kCompletions
  Use use;
  const char* schema;  // JSON schema of its values but for null, which is as if it were absent; "{}": any
  const char* what;    // what it does, or why it is refused
  void (*read)(BodyReader&, const char* name, const Json& value) = nullptr;  // of what is used, options too
  const char* neutral = "[]";                                                // a list of values without effect
};
std::span<const BodyField> body_fields();
// Null: the body does not know the name.
const BodyField* body_field(Route route, std::string_view name);
// Whether the value is one of those that have no effect.
bool is_neutral(const BodyField& field, const Json& value);

// JSON text to an object. Refusal kNoJson: it is none, nested too deep, has too many values, or has one
// that nothing can hold: half of a surrogate pair, a number that is too large. `inside`: set for such a value; then the
// object has U+FFFD or null in its place. Null: not wanted. `skips`: keys whose values are not wanted (parse_ordered).
OrRefusal<Json> parse_body(std::string_view text, std::optional<Refusal>* inside = nullptr,
                           const std::function<bool(std::string_view key)>& skips = nullptr);
// A field of this name changes nothing, whatever it has.
bool has_no_effect(Route route, std::string_view name);
// body.model; "": there is none. Refusal: it is no string.
OrRefusal<std::string> model_of(const Json& body);

class MediaFiles;
struct BodyRules {
  MediaFiles* files = nullptr;  // that bytes_of_media() has read for images by file: URLs; null: there are none
  bool strict = false;          // names that no body knows are refused (`unknown_parameter`), not ignored
};

// A body that was understood.
struct Asked {
  Route route = Route::kChat;
  std::string model;  // as the body has it; "": it has none
  bool stream = false, include_usage = false;
  // One for each prompt, in order. All of them are to be submitted; `interactive`, `client` and `deadline` are left to
  // who submits.
  std::vector<Request> requests;
  int64_t choices = 1;              // answers to each prompt
  std::optional<int64_t> logprobs;  // alternatives for each token
  std::optional<int64_t> prompt_logprobs;
  bool echo = false;
  const Model* by = nullptr;  // that it was read for
  // The field that says an option, by the option's name in GenerateOptions.
  std::map<std::string, std::string> fields_of_options;
  std::string prompt_field = {};  // that has the prompt, or should have it
  Ignored ignored;
};
OrRefusal<Asked> read_body(Route route, const Json& body, const Model& model, const BodyRules& rules = {});

// Of what Model::submit refuses (kBusy: status 503), or of an answer that failed: its error, or the end kError.
// Messages have no paths.
Refusal refusal_of(const Asked& asked, const Status& status);
// Of a list of more prompts than `most`, which may run and wait where `where` says.
std::optional<Refusal> too_many_prompts(const Asked& asked, int64_t most, const std::string& where);
std::optional<Refusal> refusal_of(const Asked& asked, const Result<Generation>& result);

// What an answer, and each of its chunks, begins with.
struct Envelope {
  std::string id;       // "chatcmpl-..." or "cmpl-..."
  int64_t created = 0;  // seconds since 1970
  std::string model;    // as the caller named it
};
// A new id of the route's kind.
std::string new_id(Route route);

// The whole answer. `results`: of asked.requests, in their order; none of them has failed.
Json answer_body(const Model& model, const Asked& asked, const Envelope& envelope, std::span<const Generation> results);

// The answer in chunks, for server-sent events. Choice `request * asked.choices + token.choice`.
class BodyStream {
 public:
  // Both must outlive it.
  BodyStream(const Model& model, const Asked& asked, Envelope envelope);
  ~BodyStream();
  // Before the first token of a request: chat has the role.
  std::vector<Json> begin(size_t request);
  // None: there is nothing to be shown yet.
  std::optional<Json> token(size_t request, const Event& token);
  // After the last token: finish_reason of each choice. The generation has not failed.
  std::vector<Json> end(size_t request, const Generation& generation);
  // After all requests: with usage and without choices; to be sent where asked.include_usage.
  Json usage() const;

 private:
  struct State;
  bool at_once() const;
  size_t number(size_t request, size_t choice) const;
  Json chunk(size_t choice, const std::string& text, Json logprobs, Json finish_reason) const;
  const Model& model_;
  const Asked& asked_;
  const Envelope envelope_;
  const std::unique_ptr<State> state_;
};

}  // namespace situ::serve
