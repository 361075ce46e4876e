#include "serve/openapi.h"

#include <nlohmann/json.hpp>

#include "serve/call.h"

namespace situ::serve {
namespace {

Json reference(const char* name) { return {{"$ref", std::string("#/components/schemas/") + name}}; }

Json of_type(const char* type, const char* what) { return {{"type", type}, {"description", what}}; }

// A body of one of the small calls.
struct SmallBody {
  const char* path;
  Json properties, required;
};

std::vector<SmallBody> small_bodies() {
  const Json model = of_type("string", "a name of the model; absent: the only one");
  return {{"/tokenize",
           {{"model", model},
            {"content", of_type("string", "the text")},
            {"add_special", of_type("boolean", "with the tokens that begin and end a text")},
            {"parse_special", of_type("boolean", "special tokens in the text are tokens")},
            {"with_pieces", of_type("boolean", "with the text of each token")}},
           {"content"}},
          {"/detokenize",
           {{"model", model}, {"tokens", {{"type", "array"}, {"items", {{"type", "integer"}, {"minimum", 0}}}}}},
           {"tokens"}},
          {"/apply-template",
           {{"model", model},
            {"messages", {{"type", "array"}, {"items", {{"type", "object"}}}, {"minItems", 1}}},
            {"chat_template_kwargs", of_type("object", "variables of the template")},
            {"add_generation_prompt", of_type("boolean", "with what the answer follows")}},
           {"messages"}}};
}

Json body_schema(Route route) {
  Json properties = Json::object();
  for (const BodyField& field : body_fields()) {
    if (!(field.routes & static_cast<int>(route))) continue;
    Json schema = Json::parse(field.schema);
    const char* note = field.use == BodyField::Use::kUsed       ? ""
                       : field.use == BodyField::Use::kAccepted ? "Accepted without effect. "
                                                                : "Refused. ";
    schema["description"] = std::string(note) + field.what;
    properties[field.name] = std::move(schema);
  }
  return {{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
}

Json operation_of(const RouteEntry& entry, const std::vector<SmallBody>& bodies) {
  Json operation = {{"summary", entry.what}};
  Json responses = {
      {"200", {{"description", "The answer."}}},
      {"default",
       {{"description", "An error."}, {"content", {{"application/json", {{"schema", reference("Error")}}}}}}}};
  operation["responses"] = std::move(responses);
  Json schema;
  if (const std::optional<Route> route = route_of(entry.path)) schema = body_schema(*route);
  for (const SmallBody& b : bodies)
    if (std::string_view(b.path) == entry.path)
      schema = {
          {"type", "object"}, {"properties", b.properties}, {"required", b.required}, {"additionalProperties", false}};
  if (!schema.is_null())
    operation["requestBody"] = {{"required", true},
                                {"content", {{"application/json", {{"schema", std::move(schema)}}}}}};
  Json parameters = Json::array();
  if (entry.flags & RouteEntry::kBelow)
    parameters.push_back({{"name", "name"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}});
  if (std::string_view(entry.path) == "/debug/placement")
    parameters.push_back({{"name", "model"}, {"in", "query"}, {"schema", {{"type", "string"}}}});
  if (!parameters.empty()) operation["parameters"] = std::move(parameters);
  if (entry.flags & RouteEntry::kOpen) operation["security"] = Json::array();
  return operation;
}

// With defaults: docs/limits.md is made of them.
Json limits() {
  Json list = Json::array();
  for (const LimitEntry& entry : limit_entries())
    list.push_back({{"name", entry.name},
                    {"default", Limits{}.*entry.value},
                    {"least", entry.least},
                    {"most", entry.most},
                    {"what", entry.what}});
  return list;
}

}  // namespace

Json openapi() {
  const std::vector<SmallBody> bodies = small_bodies();
  Json paths = Json::object();
  for (const RouteEntry& entry : route_entries()) {
    const std::string path = std::string(entry.path) + (entry.flags & RouteEntry::kBelow ? "{name}" : "");
    paths[path][std::string_view(entry.method) == "GET" ? "get" : "post"] = operation_of(entry, bodies);
  }
  const Json text = {{"type", "string"}}, maybe = {{"type", {"string", "null"}}};
  const Json error = {{"type", "object"},
                      {"properties",
                       {{"error",
                         {{"type", "object"},
                          {"properties", {{"message", text}, {"type", text}, {"param", maybe}, {"code", maybe}}},
                          {"required", {"message", "type", "param", "code"}}}}}},
                      {"required", {"error"}}};
  return {{"openapi", "3.1.0"},
          {"info", {{"title", "situ serve"}, {"version", "1"}, {"x-limits", limits()}}},
          {"paths", std::move(paths)},
          {"components",
           {{"schemas", {{"Error", error}}}, {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
          {"security", {Json::object(), {{"key", Json::array()}}}}};
}

}  // namespace situ::serve
