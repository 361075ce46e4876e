#include "python/images.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

namespace nb = nanobind;
using namespace nb::literals;

namespace situ::python {
namespace {

using Pixels = nb::ndarray<const uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;

// Each is the bytes of a file's name, or an array [height, width, 3] of uint8.
Images read(ModelHandle& self, const nb::list& given) {
  std::vector<ImageSource> sources;
  std::vector<Pixels> held;  // an array may have been made for this call
  for (const nb::handle image : given) {
    if (nb::isinstance<nb::bytes>(image)) {
      const nb::bytes name = nb::borrow<nb::bytes>(image);
      sources.push_back({std::string(name.c_str(), name.size())});
    } else {
      const Pixels& pixels = held.emplace_back(nb::cast<Pixels>(image));
      sources.push_back(
          {"", pixels.data(), static_cast<int64_t>(pixels.shape(1)), static_cast<int64_t>(pixels.shape(0))});
    }
  }
  return value_or_raise(self.apart([&](Model& m) { return read_images(m, sources); }));
}

}  // namespace

void bind_images(nb::class_<ModelHandle>& model, nb::module_& m) {
  nb::class_<Images>(m, "Images", "Images of a prompt as the model's encoder reads them.")
      .def_prop_ro("sizes", [](const Images& images) {
        nb::list list;
        for (const Images::Image& i : images.images) list.append(nb::make_tuple(i.width, i.height, i.tokens));
        return list;
      });
  model.def("read_images", &read, "images"_a, nb::sig("def read_images(self, images: list[typing.Any]) -> Images"))
      .def(
          "encode_with_images",
          [](ModelHandle& self, const std::string& text, bool chat, const Images& images) {
            return value_or_raise(
                self.apart([&](Model& of) { return encode_with_images(of, ImageText{text, "", chat}, images); }));
          },
          "text"_a, "chat"_a, "images"_a);
}

}  // namespace situ::python
