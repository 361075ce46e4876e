#include "serve/openapi.h"

#include <nlohmann/json.hpp>

#include "serve/call.h"
#include "serve/protocol.h"
#include "serve/small_bodies.h"

namespace situ::serve {
namespace {

constexpr const char* kUses[] = {"used", "used", "accepted without effect", "refused", "variable of the template"};

bool has_neutral(const BodyField& field) { return std::string_view(field.neutral) != "[]"; }

Json schema_of(const BodyField& field) {
  Json schema = Json::parse(field.schema);
  const char* note = field.use == BodyField::Use::kAccepted ? "Accepted without effect. "
                     : field.use == BodyField::Use::kRefused
                         ? (has_neutral(field) ? "Refused but for what x-neutral lists. " : "Refused. ")
                         : "";
  schema["description"] = std::string(note) + field.what;
  schema["x-use"] = kUses[static_cast<int>(field.use)];
  if (has_neutral(field)) schema["x-neutral"] = Json::parse(field.neutral);
  return schema;
}

// Null: the path takes no body.
Json body_schema(const char* path) {
  Json schema = {{"type", "object"}, {"properties", Json::object()}, {"additionalProperties", true}};
  Json& properties = schema["properties"];
  const Protocol* protocol = reading_protocol(path);
  const SmallBody* small = small_body(path);
  if (!protocol && !small) return nullptr;
  if (protocol)
    for (const BodyField* field : protocol->fields()) properties[field->name] = schema_of(*field);
  else
    for (const BodyField& field : small->fields) properties[field.name] = schema_of(field);
  if (small && *small->required) schema["required"] = Json::array({small->required});
  return schema;
}

Json operation_of(const RouteEntry& entry) {
  Json operation = {{"summary", entry.what}};
  const Json error = Json::parse(protocol_of(entry.path).error_schema());
  Json responses = {
      {"200", {{"description", "The answer."}}},
      {"default", {{"description", "An error."}, {"content", {{"application/json", {{"schema", error}}}}}}}};
  operation["responses"] = std::move(responses);
  Json schema = body_schema(entry.path);
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
  Json paths = Json::object();
  for (const RouteEntry& entry : route_entries()) {
    const std::string path = std::string(entry.path) + (entry.flags & RouteEntry::kBelow ? "{name}" : "");
    paths[path][std::string_view(entry.method) == "GET" ? "get" : "post"] = operation_of(entry);
  }
  return {{"openapi", "3.1.0"},
          {"info", {{"title", "situ serve"}, {"version", "1"}, {"x-limits", limits()}}},
          {"paths", std::move(paths)},
          {"components", {{"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
          {"security", {Json::object(), {{"key", Json::array()}}}}};
}

}  // namespace situ::serve
