// The body of a call: its JSON, how much of it there may be, and the fields of the calls that need no model.
#include <nlohmann/json.hpp>

#include "fuzz_input.h"
#include "serve/body_limits.h"
#include "serve/media_bytes.h"
#include "serve/small_bodies.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace situ::serve;
  const auto checked = [](const Fault& fault) {
    EXPECT_EQ(fault.status, 400);
    EXPECT_NE(fault.message, "");
    EXPECT_EQ(fault.message.find('\n'), std::string::npos) << fault.message;
    const std::string text = to_json(fault).dump(-1, ' ', false, Json::error_handler_t::replace);
    EXPECT_TRUE(Json::accept(text)) << text;
  };
  OrFault<Json> body = parse_body({reinterpret_cast<const char*>(data), size});
  if (const Fault* fault = std::get_if<Fault>(&body)) return checked(*fault), 0;
  const Json& json = std::get<Json>(body);
  EXPECT_TRUE(json.is_object());
  const OrFault<std::string> name = model_of(json);
  if (const Fault* fault = std::get_if<Fault>(&name)) checked(*fault);
  Limits limits;
  limits.image_pixels = limits.sound_seconds = 100;
  if (const std::optional<Fault> fault = beyond_limits(json, limits)) return checked(*fault), 0;
  for (const SmallBody& small : small_bodies()) {
    Ignored ignored;
    if (const std::optional<Fault> fault = check_fields(small, json, false, ignored)) checked(*fault);
    EXPECT_EQ(ignored.header().find_first_of("\r\n"), std::string::npos);
  }
  MediaFiles files;
  const OrFault<int64_t> media = bytes_of_media(json, limits, files);
  if (const Fault* fault = std::get_if<Fault>(&media))
    checked(*fault);
  else
    EXPECT_GE(std::get<int64_t>(media), 0);
  return 0;
}
