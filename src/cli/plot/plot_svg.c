/*
 * plot_svg: line charts and bars as inline SVG. Colours come from the page's style sheet, so that a
 * chart is right on a light page and on a dark one. Of more values than a line can show the mean of
 * each stretch is drawn, over a band from the least to the largest: a noisy curve looks noisy.
 */
#include "cli/plot/plot.h"

#include <float.h>
#include <math.h>

#define WIDTH 440.0
#define HEIGHT 264.0
#define LEFT 56.0
#define RIGHT 12.0
#define TOP 10.0
#define BOTTOM 42.0 /* numbers, and under them what they are */
#define MAX_POINTS 400
#define MAX_TICKS 12

#define NAME_CHARS 31 /* of a bar, before it begins */

struct axis {
    double low, high, from, to; /* values, and where they lie */
    bool log;
};

void plot_html_text(FILE *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*text, out);
        }
}

static double place(const struct axis *a, double value)
{
    double low = a->low, high = a->high;
    if (a->log) {
        value = log10(fmax(value, low));
        low = log10(low);
        high = log10(high);
    }
    return a->from + (value - low) / (high - low) * (a->to - a->from);
}

/* 1, 2 or 5 times a power of ten, so that there are about want of them. */
static double tick_step(double range, int want)
{
    double rough = range / want, power = pow(10, floor(log10(rough))), part = rough / power;
    return power * (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10);
}

static int ticks_of(const struct axis *a, int want, double ticks[MAX_TICKS])
{
    int n = 0;
    if (a->log) {
        int step = (int)ceil((log10(a->high) - log10(a->low)) / want);
        for (double e = ceil(log10(a->low) - 1e-9);
             e <= log10(a->high) + 1e-9 && n<MAX_TICKS; e += step> 1 ? step : 1)
            ticks[n++] = pow(10, e);
        return n;
    }
    double step = tick_step(a->high - a->low, want);
    for (double k = ceil(a->low / step - 1e-9); k * step <= a->high + 1e-9 * step && n < MAX_TICKS;
         k++)
        ticks[n++] = k * step + 0.0; /* no "-0" */
    return n;
}

/* 12k, 3.5M: labels stay short. */
static const char *label_of(double value, char out[24])
{
    static const char *const units[] = {"", "k", "M", "G", "T"};
    int unit = 0;
    double size = fabs(value);
    while (size >= 1e4 && unit < 4) {
        size /= 1000;
        value /= 1000;
        unit++;
    }
    snprintf(out, 24, "%.4g%s", value, units[unit]);
    return out;
}

static void draw_axes(FILE *out, const struct axis *x, const struct axis *y)
{
    double ticks[MAX_TICKS];
    char label[24];
    int n = ticks_of(y, 5, ticks);
    for (int i = 0; i < n; i++) {
        double at = place(y, ticks[i]);
        fprintf(out, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>", LEFT, at, WIDTH - RIGHT);
        fprintf(out, "<text class=\"y\" x=\"%.1f\" y=\"%.1f\">%s</text>", LEFT - 6, at + 4,
                label_of(ticks[i], label));
    }
    n = ticks_of(x, 5, ticks);
    for (int i = 0; i < n; i++)
        fprintf(out, "<text class=\"x\" x=\"%.1f\" y=\"%.1f\">%s</text>", place(x, ticks[i]),
                HEIGHT - BOTTOM + 17, label_of(ticks[i], label));
    fprintf(out, "<text class=\"y\" x=\"%.1f\" y=\"%.1f\">step</text>", WIDTH - RIGHT, HEIGHT - 6);
    fprintf(out, "<path class=\"axis\" d=\"M%.1f %.1fV%.1fH%.1f\"/>", LEFT, TOP, HEIGHT - BOTTOM,
            WIDTH - RIGHT);
}

static bool drawn(const struct plot_series *s, size_t i)
{
    return isfinite(s->y[i]) && isfinite(s->x[i]);
}

/* Steps by stretch: x, mean, least and largest of those that are finite. False: there are none. */
static bool stretch(const struct plot_series *s, size_t first, size_t last, double out[4])
{
    size_t n = 0;
    out[0] = out[1] = 0;
    out[2] = DBL_MAX;
    out[3] = -DBL_MAX;
    for (size_t i = first; i < last; i++) {
        if (!drawn(s, i))
            continue;
        out[0] += s->x[i];
        out[1] += s->y[i];
        out[2] = fmin(out[2], s->y[i]);
        out[3] = fmax(out[3], s->y[i]);
        n++;
    }
    out[0] /= (double)(n ? n : 1);
    out[1] /= (double)(n ? n : 1);
    return n > 0;
}

static void draw_band(FILE *out, const struct plot_series *s, const struct axis *x,
                      const struct axis *y, size_t each)
{
    double v[4];
    const char *move = "M";
    fprintf(out, "<path class=\"band c%d\" d=\"", s->color);
    for (size_t i = 0; i < s->n; i += each)
        if (stretch(s, i, i + each < s->n ? i + each : s->n, v)) {
            fprintf(out, "%s%.1f %.1f", move, place(x, v[0]), place(y, v[3]));
            move = "L";
        }
    for (size_t i = (s->n + each - 1) / each; i-- > 0;)
        if (stretch(s, i * each, (i + 1) * each < s->n ? (i + 1) * each : s->n, v))
            fprintf(out, "L%.1f %.1f", place(x, v[0]), place(y, v[2]));
    fputs("Z\"/>", out);
}

static void draw_line(FILE *out, const struct plot_series *s, const struct axis *x,
                      const struct axis *y)
{
    size_t each = (s->n + MAX_POINTS - 1) / MAX_POINTS;
    double v[4];
    bool open = false;
    if (each > 1 && s->style == PLOT_LINE)
        draw_band(out, s, x, y, each);
    fprintf(out, "<path class=\"line c%d%s\" d=\"", s->color,
            s->style == PLOT_DASHED ? " dashed" : "");
    for (size_t i = 0; i < s->n; i += each) {
        bool some = stretch(s, i, i + each < s->n ? i + each : s->n, v);
        if (some)
            fprintf(out, "%s%.1f %.1f", open ? "L" : "M", place(x, v[0]), place(y, v[1]));
        open = open || some;
    }
    fputs("\"/>", out);
}

static void draw_dots(FILE *out, const struct plot_series *s, const struct axis *x,
                      const struct axis *y)
{
    bool open = false;
    fprintf(out, "<path class=\"line thin c%d\" d=\"", s->color);
    for (size_t i = 0; i < s->n; i++)
        if (drawn(s, i)) {
            fprintf(out, "%s%.1f %.1f", open ? "L" : "M", place(x, s->x[i]), place(y, s->y[i]));
            open = true;
        }
    fputs("\"/>", out);
    for (size_t i = 0; i < s->n; i++)
        if (drawn(s, i))
            fprintf(out,
                    "<circle class=\"dot c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>step %.0f: "
                    "%.6g</title></circle>",
                    s->color, place(x, s->x[i]), place(y, s->y[i]), s->x[i], s->y[i]);
}

static size_t n_drawn(const struct plot_series *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += drawn(s, i);
    return n;
}

/* One dot is enough, a line needs two. */
static bool is_shown(const struct plot_series *s)
{
    return n_drawn(s) > (s->style != PLOT_DOTS);
}

static void widen(struct axis *a, double value)
{
    if (isfinite(value)) {
        a->low = fmin(a->low, value);
        a->high = fmax(a->high, value);
    }
}

static void fit_axes(const struct plot_chart *c, struct axis *x, struct axis *y)
{
    *x = (struct axis){DBL_MAX, -DBL_MAX, LEFT, WIDTH - RIGHT, false};
    *y = (struct axis){DBL_MAX, -DBL_MAX, HEIGHT - BOTTOM, TOP, false};
    for (int k = 0; k < c->n; k++)
        for (size_t i = 0; is_shown(&c->series[k]) && i < c->series[k].n; i++)
            if (drawn(&c->series[k], i)) {
                widen(x, c->series[k].x[i]);
                widen(y, c->series[k].y[i]);
            }
    y->log = c->may_be_log && y->low > 0 && y->high > 100 * y->low;
    if (c->limit > 0 && c->limit < 3 * y->high)
        widen(y, c->limit);
    if (c->from_zero && !y->log) /* which has no zero */
        y->low = fmin(y->low, 0);
    if (x->high <= x->low)
        x->high = x->low + 1;
    if (y->high <= y->low)
        y->high = y->low + (y->low != 0 ? fabs(y->low) : 1);
    if (!y->log)
        y->high += 0.04 * (y->high - y->low); /* the top of a curve is not cut */
}

static void draw_legend(FILE *out, const struct plot_chart *c)
{
    static const char *const marks[] = {"", " dashed", " dots"};
    fputs("<p class=\"legend\">", out);
    for (int i = 0; i < c->n; i++) {
        if (!is_shown(&c->series[i]))
            continue;
        fprintf(out, "<span><i class=\"c%d%s\"></i>", c->series[i].color,
                marks[c->series[i].style]);
        plot_html_text(out, c->series[i].name);
        fputs("</span> ", out);
    }
    fputs("</p>", out);
}

bool plot_svg_chart(FILE *out, const struct plot_chart *c)
{
    struct axis x, y;
    bool any = false;
    for (int i = 0; i < c->n; i++)
        any |= is_shown(&c->series[i]);
    if (!any)
        return false;
    fit_axes(c, &x, &y);
    fputs("<figure><figcaption>", out);
    plot_html_text(out, c->title);
    fprintf(out, "<small>%s%s</small></figcaption>", c->unit, y.log ? ", logarithmic" : "");
    fprintf(out, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
    plot_html_text(out, c->title);
    fputs("\">", out);
    draw_axes(out, &x, &y);
    if (c->limit > 0 && c->limit <= y.high && c->limit >= y.low)
        fprintf(out, "<path class=\"limit\" d=\"M%.1f %.1fH%.1f\"/>", LEFT, place(&y, c->limit),
                WIDTH - RIGHT);
    for (int i = 0; i < c->n; i++) {
        if (!is_shown(&c->series[i]))
            continue;
        if (c->series[i].style == PLOT_DOTS)
            draw_dots(out, &c->series[i], &x, &y);
        else
            draw_line(out, &c->series[i], &x, &y);
    }
    fputs("</svg>", out);
    draw_legend(out, c);
    fputs("</figure>\n", out);
    return true;
}

void plot_svg_bars(FILE *out, const char *title, const struct plot_bar *bars, int n)
{
    double most = 0, row = 26, height = 8 + row * n;
    for (int i = 0; i < n; i++)
        most = fmax(most, bars[i].value);
    fputs("<figure><figcaption>", out);
    plot_html_text(out, title);
    fprintf(out, "</figcaption><svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", WIDTH,
            height);
    plot_html_text(out, title);
    fputs("\">", out);
    for (int i = 0; i < n; i++) {
        double y = 4 + row * i, width = most > 0 ? bars[i].value / most * 125 : 0;
        char name[NAME_CHARS + 4];
        bool fits = strlen(bars[i].name) <= NAME_CHARS;
        snprintf(name, sizeof name, "%.*s%s", fits ? NAME_CHARS : NAME_CHARS - 1, bars[i].name,
                 fits ? "" : "\u2026");
        fprintf(out, "<text class=\"name\" x=\"0\" y=\"%.1f\">", y + 16);
        plot_html_text(out, name);
        fprintf(out,
                "</text><rect class=\"bar c%d\" x=\"226\" y=\"%.1f\" width=\"%.1f\" "
                "height=\"16\"/><text class=\"size\" x=\"%.1f\" y=\"%.1f\">",
                bars[i].color, y + 3, fmax(width, 1), 232 + width, y + 16);
        plot_html_text(out, bars[i].text);
        fputs("</text>", out);
    }
    fputs("</svg></figure>\n", out);
}
