//! Tokens per second against memory as a drawing (SVG), readable on light and dark ground and without colours.

use super::rows::Row;
use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 56.0;

/// Colours by the ground; the bound is dashed, so that it is told apart without them.
const STYLE: &str = "\
svg{background:#fff;font:13px system-ui,sans-serif}text{fill:#222}.grid{stroke:#ddd}.axis{stroke:#888}\
.reached{stroke:#0b62c4;fill:none;stroke-width:2.5}.dot{fill:#0b62c4}.bound{stroke:#b4540a;fill:none;stroke-width:2;stroke-dasharray:6 4}\
.ring{fill:none;stroke:#b4540a;stroke-width:2}.small{font-size:12px}\
@media(prefers-color-scheme:dark){svg{background:#16181c}text{fill:#e6e6e6}.grid{stroke:#33373d}.axis{stroke:#777}\
.reached{stroke:#6cb2ff}.dot{fill:#6cb2ff}.bound,.ring{stroke:#ffa860}}";

/// A point: memory in GiB, reached, bound.
type Point = (f64, f64, f64);

/// The drawing. Rows of one prompt and number of tokens make one line.
pub(super) fn draw(title: &str, rows: &[Row]) -> String {
    let mut series: Vec<(String, Vec<Point>)> = Vec::new();
    for row in rows {
        let (Some(measured), Some(bytes)) = (&row.measured, row.case.memory_bytes) else { continue };
        let name = format!("prompt {}, decode {}", row.case.prompt_tokens, row.case.decode_tokens);
        let point = (
            bytes as f64 / f64::from(1 << 30),
            measured.decode_tokens_per_second,
            measured.decode_bound_tokens_per_second,
        );
        match series.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push(point),
            None => series.push((name, vec![point])),
        }
    }
    for (_, points) in &mut series {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let all = || series.iter().flat_map(|(_, points)| points);
    let most = |value: fn(&Point) -> f64| all().map(value).filter(|v| v.is_finite()).fold(0.0, f64::max);
    let (right, top) = (ceiling(most(|p| p.0)), ceiling(most(|p| p.1.max(p.2))));
    let scale = Scale { right, top };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n<title>{0}</title>\n<style>{STYLE}</style>\n<text x=\"{LEFT}\" y=\"24\">{0}</text>\n",
        escaped(title)
    );
    scale.grid(&mut svg);
    legend(&mut svg);
    for (name, points) in &series {
        scale.line(&mut svg, points, |p| p.2, "bound");
        scale.line(&mut svg, points, |p| p.1, "reached");
        for point in points {
            scale.mark(&mut svg, *point);
        }
        if let (true, Some(last)) = (series.len() > 1, points.last()) {
            let (x, y) = (scale.x(last.0), scale.y(last.1) + 18.0);
            let _ = writeln!(
                svg,
                "<text class=\"small\" text-anchor=\"end\" x=\"{x:.1}\" y=\"{y:.1}\">{name}</text>"
            );
        }
    }
    svg + "</svg>\n"
}

fn legend(svg: &mut String) {
    for (x, class, text) in [(0.0, "reached", "reached"), (110.0, "bound", "bound: what the machine allows")]
    {
        let (from, to) = (LEFT + x, LEFT + x + 28.0);
        // Writing into a String cannot fail, here and below.
        let _ = writeln!(
            svg,
            "<path class=\"{class}\" d=\"M{from:.1} 42H{to:.1}\"/><text class=\"small\" x=\"{:.1}\" y=\"46\">{text}</text>",
            to + 6.0
        );
    }
}

/// What the axes end at.
struct Scale {
    right: f64,
    top: f64,
}

impl Scale {
    fn x(&self, gib: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * gib / self.right
    }

    fn y(&self, rate: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * rate / self.top
    }

    fn grid(&self, svg: &mut String) {
        let (left, right, bottom) = (self.x(0.0), self.x(self.right), self.y(0.0));
        for step in steps(self.top) {
            let y = self.y(step);
            let class = if step == 0.0 { "axis" } else { "grid" };
            let _ = writeln!(
                svg,
                "<path class=\"{class}\" d=\"M{left:.1} {y:.1}H{right:.1}\"/><text class=\"small\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{step}</text>",
                left - 8.0,
                y + 4.0
            );
        }
        for step in steps(self.right) {
            let x = self.x(step);
            let _ = writeln!(
                svg,
                "<path class=\"axis\" d=\"M{x:.1} {bottom:.1}v5\"/><text class=\"small\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{step}</text>",
                bottom + 20.0
            );
        }
        let middle = f64::midpoint(left, right);
        let _ = writeln!(
            svg,
            "<text text-anchor=\"middle\" x=\"{middle:.1}\" y=\"{:.1}\">memory budget, GiB</text><text class=\"small\" x=\"8\" y=\"{:.1}\">tok/s</text>",
            HEIGHT - 12.0,
            TOP - 8.0
        );
    }

    fn line(&self, svg: &mut String, points: &[Point], value: fn(&Point) -> f64, class: &str) {
        let mut path = String::new();
        for (number, point) in points.iter().enumerate() {
            let letter = if number == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{:.1} {:.1}", self.x(point.0), self.y(value(point)));
        }
        if !path.is_empty() {
            let _ = writeln!(svg, "<path class=\"{class}\" d=\"{path}\"/>");
        }
    }

    fn mark(&self, svg: &mut String, (gib, reached, bound): Point) {
        let (x, reached_y, bound_y) = (self.x(gib), self.y(reached), self.y(bound));
        let _ = writeln!(
            svg,
            "<circle class=\"ring\" cx=\"{x:.1}\" cy=\"{bound_y:.1}\" r=\"4\"/><circle class=\"dot\" cx=\"{x:.1}\" cy=\"{reached_y:.1}\" r=\"4.5\"><title>{gib:.2} GiB: {reached:.2} of {bound:.2} tok/s</title></circle>"
        );
    }
}

/// The next round number at or above `value`.
fn ceiling(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let round = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0].into_iter().map(|step| step * power);
    round.into_iter().find(|&round| round >= value * 0.9999).unwrap_or(10.0 * power)
}

/// About five marks from 0 to `end`.
fn steps(end: f64) -> Vec<f64> {
    let power = 10f64.powf((end / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| end / step <= 6.0)
        .unwrap_or(end);
    (0..=20)
        .map(|number| f64::from(number) * step)
        .take_while(|&mark| mark <= end * 1.0001)
        .map(tidy)
        .collect()
}

/// Without the dust of binary fractions.
fn tidy(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_end_with_the_axis() {
        assert_eq!((ceiling(4.1), ceiling(22.0), ceiling(0.0)), (5.0, 30.0, 1.0));
        assert_eq!(steps(5.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(steps(30.0), [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]);
        assert_eq!(steps(0.3), [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]);
    }

    #[test]
    fn nothing_measured_is_an_empty_frame() {
        let svg = draw("a < b & c", &[]);
        assert!(
            svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("a &lt; b &amp; c"),
            "{svg}"
        );
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
