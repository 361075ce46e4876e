// The placement of a model as a picture: one page of HTML that needs nothing else, no script and no other file.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace situ::cli {

// `facts`: what `situ inspect --json` prints of a model that was placed. Entries carry `data-bytes`. The sums are
// figures of the facts: in #regions memory.bytes, in #lifetimes block_bytes of all module.programs, in #programs
// memory.arena_bytes_unshared, in #ports bytes of all module.ports.
std::string html_page(const nlohmann::ordered_json& facts);

// -- its parts
inline std::string text_of(const nlohmann::ordered_json& object, const char* key) {
  return object.at(key).get<std::string>();
}
// <style>, without its tags.
extern const char* const kPageStyle;
// The sections #lifetimes and #programs.
std::string lifetimes_section(const nlohmann::ordered_json& facts);
std::string programs_section(const nlohmann::ordered_json& facts);

}  // namespace situ::cli
