// SPDX-License-Identifier: Apache-2.0
#include "cli/figures/module/figures_module.h"

#include <cairo-pdf.h>
#include <cairo.h>
#include <librsvg/rsvg.h>

#include <cmath>
#include <memory>
#include <string>

#include <fmt/format.h>

namespace {

constexpr double points_per_inch = 72;
/// Resolution that SVG gives a pixel.
constexpr double pixels_per_inch = 96;
/// Most dots of a PNG: 1 GiB of memory while it is drawn.
constexpr double most_dots = double{1 << 28};
/// Most dots of a side, as cairo has it.
constexpr double longest_side = 32767;

template <auto Release>
struct Released {
    template <class Value>
    void operator()(Value* value) const {
        Release(value);
    }
};
using Handle = std::unique_ptr<RsvgHandle, Released<g_object_unref>>;
using Surface = std::unique_ptr<cairo_surface_t, Released<cairo_surface_destroy>>;
using Context = std::unique_ptr<cairo_t, Released<cairo_destroy>>;

struct Sink {
    PipetwinTakeBytes take;
    void* to;
};

cairo_status_t write_to(void* sink, const unsigned char* bytes, unsigned int count) {
    const auto* const out = static_cast<const Sink*>(sink);
    out->take(out->to, bytes, count);
    return CAIRO_STATUS_SUCCESS;
}

/// Takes a message out of GLib's error.
std::string message_of(GError* error) {
    std::string text = error == nullptr ? "unknown error" : error->message;
    g_clear_error(&error);
    return text;
}

/// Draws the document over the whole surface; returns "" or an error.
std::string render(RsvgHandle* handle, cairo_surface_t* surface, double width, double height) {
    const Context context{cairo_create(surface)};
    const RsvgRectangle whole{0, 0, width, height};
    GError* error = nullptr;
    if (rsvg_handle_render_document(handle, context.get(), &whole, &error) == FALSE) {
        return message_of(error);
    }
    const cairo_status_t status = cairo_status(context.get());
    return status == CAIRO_STATUS_SUCCESS ? "" : cairo_status_to_string(status);
}

std::string finished(cairo_surface_t* surface) {
    cairo_surface_finish(surface);
    const cairo_status_t status = cairo_surface_status(surface);
    return status == CAIRO_STATUS_SUCCESS ? "" : cairo_status_to_string(status);
}

std::string draw(std::string_view svg, double dots_per_inch, const char* creator, Sink sink) {
    GError* error = nullptr;
    const Handle handle{
        rsvg_handle_new_from_data(reinterpret_cast<const guint8*>(svg.data()), svg.size(), &error)};
    if (!handle) {
        return message_of(error);
    }
    rsvg_handle_set_dpi(handle.get(), pixels_per_inch);
    double width = 0;
    double height = 0;
    if (rsvg_handle_get_intrinsic_size_in_pixels(handle.get(), &width, &height) == FALSE) {
        return "the picture has no size";
    }
    const double per_inch = dots_per_inch > 0 ? dots_per_inch : points_per_inch;
    width *= per_inch / pixels_per_inch;
    height *= per_inch / pixels_per_inch;
    std::string problem;
    if (dots_per_inch > 0) {
        width = std::ceil(width - 0.01);
        height = std::ceil(height - 0.01);
        if (width > longest_side || height > longest_side || width * height > most_dots) {
            return fmt::format("it would have {:.0f} x {:.0f} dots", width, height);
        }
        const Surface surface{cairo_image_surface_create(
            CAIRO_FORMAT_RGB24, static_cast<int>(width), static_cast<int>(height))};
        problem = render(handle.get(), surface.get(), width, height);
        if (problem.empty()) {
            const cairo_status_t status =
                cairo_surface_write_to_png_stream(surface.get(), write_to, &sink);
            problem = status == CAIRO_STATUS_SUCCESS ? "" : cairo_status_to_string(status);
        }
        return problem;
    }
    const Surface surface{cairo_pdf_surface_create_for_stream(write_to, &sink, width, height)};
    cairo_pdf_surface_set_metadata(surface.get(), CAIRO_PDF_METADATA_CREATOR, creator);
    problem = render(handle.get(), surface.get(), width, height);
    const std::string ended = finished(surface.get());
    return problem.empty() ? ended : problem;
}

}  // namespace

int pipetwin_figures_interface_version() {
    return pipetwin_figures_interface;
}

const char* pipetwin_draw_figure(const char* svg,
                                 std::size_t size,
                                 double dots_per_inch,
                                 const char* creator,
                                 PipetwinTakeBytes take,
                                 void* sink) {
    thread_local std::string problem;
    problem = draw({svg, size}, dots_per_inch, creator, {take, sink});
    return problem.empty() ? nullptr : problem.c_str();
}
