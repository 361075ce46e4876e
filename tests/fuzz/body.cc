// The body of a call: its JSON, how much of it there may be, and the fields of the calls that need no model.
#include <nlohmann/json.hpp>

#include "fuzz_input.h"
#include "serve/body_limits.h"
#include "serve/media_bytes.h"
#include "serve/protocol.h"
#include "serve/small_bodies.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace situ::serve;
  const auto checked = [](const Refusal& refusal) {
    EXPECT_NE(refusal.message, "");
    EXPECT_EQ(refusal.message.find('\n'), std::string::npos) << refusal.message;
    for (const char* path : {"/v1/chat/completions", "/v1/messages"}) {
      const ErrorText error = protocol_of(path).error(refusal, "id");
      EXPECT_EQ(error.status, 400);
      EXPECT_TRUE(Json::accept(error.json)) << error.json;
    }
  };
  OrRefusal<Json> body = parse_body({reinterpret_cast<const char*>(data), size});
  if (const Refusal* refusal = std::get_if<Refusal>(&body)) return checked(*refusal), 0;
  const Json& json = std::get<Json>(body);
  EXPECT_TRUE(json.is_object());
  const OrRefusal<std::string> name = model_of(json);
  if (const Refusal* refusal = std::get_if<Refusal>(&name)) checked(*refusal);
  Limits limits;
  limits.image_pixels = limits.sound_seconds = 100;
  if (const std::optional<Refusal> refusal = beyond_limits(json, limits)) return checked(*refusal), 0;
  for (const SmallBody& small : small_bodies()) {
    Ignored ignored;
    if (const std::optional<Refusal> refusal = check_fields(small, json, false, ignored)) checked(*refusal);
    EXPECT_EQ(ignored.header().find_first_of("\r\n"), std::string::npos);
  }
  MediaFiles files;
  if (const std::optional<Refusal> refusal = read_files(json, limits, files)) checked(*refusal);
  return 0;
}
