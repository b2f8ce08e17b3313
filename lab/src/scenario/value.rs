//! The small values of a scenario file. A YAML scalar or map enters; a checked value leaves, or an error that the reader
//! of the file gets with line, column and the values that are allowed.

use std::fmt;
use std::time::Duration;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// A whole number from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Int<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Int<MIN, MAX> {
    /// The number; `value` is checked when the program is compiled.
    pub const fn new(value: u64) -> Self {
        assert!(MIN <= value && value <= MAX);
        Self(value)
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Int<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Whole<const MIN: u64, const MAX: u64>;
        impl<const MIN: u64, const MAX: u64> Visitor<'_> for Whole<MIN, MAX> {
            type Value = u64;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                write!(f, "a whole number from {MIN} to {MAX}")
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
                if (MIN..=MAX).contains(&value) {
                    Ok(value)
                } else {
                    Err(E::invalid_value(Unexpected::Unsigned(value), &self))
                }
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<u64, E> {
                let checked = u64::try_from(value).map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))?;
                self.visit_u64(checked)
            }
        }
        deserializer.deserialize_any(Whole::<MIN, MAX>).map(Self)
    }
}

/// A finite number that is not negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct Amount(f64);

impl Amount {
    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(deserializer)?;
        if value.is_finite() && value >= 0.0 {
            Ok(Self(value))
        } else {
            Err(D::Error::invalid_value(
                Unexpected::Float(value),
                &"a number of 0 or more",
            ))
        }
    }
}

/// A span of time, written like `500ms`, `5s` or `1m 30s`; up to an hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(Duration);

/// The longest span that a scenario can ask for.
pub const MAX_SPAN: Duration = Duration::from_secs(3600);

impl Span {
    /// So many minutes, at most an hour.
    pub fn minutes(minutes: u64) -> Self {
        Self(Duration::from_secs(minutes * 60).min(MAX_SPAN))
    }

    /// The duration.
    pub fn get(self) -> Duration {
        self.0
    }

    /// The duration in milliseconds.
    pub fn as_millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const FORM: &str = "a time of up to 1h with its unit, like 500ms, 5s or 1m 30s";
        let text = String::deserialize(deserializer)?;
        let bad = || D::Error::invalid_value(Unexpected::Str(&text), &FORM);
        let parsed: jiff::SignedDuration = text.parse().map_err(|_| bad())?;
        let span = Duration::try_from(parsed).map_err(|_| bad())?;
        if span <= MAX_SPAN { Ok(Self(span)) } else { Err(bad()) }
    }
}

/// What a measured number must satisfy: `{ value, within }`, or `{ at_least }`, `{ at_most }`, or both of the latter.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "BoundForm")]
pub struct Bound {
    low: f64,
    high: f64,
    form: BoundForm,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct BoundForm {
    value: Option<Amount>,
    within: Option<Amount>,
    at_least: Option<Amount>,
    at_most: Option<Amount>,
}

impl TryFrom<BoundForm> for Bound {
    type Error = &'static str;

    fn try_from(form: BoundForm) -> Result<Self, Self::Error> {
        let (low, high) = match (form.value, form.within, form.at_least, form.at_most) {
            (Some(value), Some(within), None, None) => (value.0 - within.0, value.0 + within.0),
            (None, None, Some(low), None) => (low.0, f64::INFINITY),
            (None, None, None, Some(high)) => (f64::NEG_INFINITY, high.0),
            (None, None, Some(low), Some(high)) if low <= high => (low.0, high.0),
            (None, None, Some(_), Some(_)) => return Err("at_least must not be larger than at_most"),
            _ => return Err("a bound is `value` and `within`, or `at_least`, or `at_most`, or the last two together"),
        };
        Ok(Self { low, high, form })
    }
}

impl Bound {
    /// `value` give or take `within`.
    pub fn around(value: Amount, within: Amount) -> Self {
        let form = BoundForm {
            value: Some(value),
            within: Some(within),
            ..BoundForm::default()
        };
        Self {
            low: value.0 - within.0,
            high: value.0 + within.0,
            form,
        }
    }

    /// True when `measured` satisfies the bound. A rounding error in the last digits is forgiven.
    pub fn holds(&self, measured: f64) -> bool {
        const ROUNDING: f64 = 1e-9;
        self.low - ROUNDING <= measured && measured <= self.high + ROUNDING
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.form {
            BoundForm {
                value: Some(value),
                within: Some(within),
                ..
            } => write!(f, "{} ± {}", value.0, within.0),
            BoundForm {
                at_least: Some(low),
                at_most: Some(high),
                ..
            } => write!(f, "{} to {}", low.0, high.0),
            BoundForm {
                at_least: Some(low), ..
            } => write!(f, "at least {}", low.0),
            _ => write!(f, "at most {}", self.high),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(yaml: &str) -> Result<Bound, String> {
        serde_saphyr::from_str(yaml).map_err(|error| error.to_string())
    }

    #[test]
    fn a_bound_takes_three_forms() {
        let table = [
            (
                "{value: 1.571, within: 0.08}",
                "1.571 ± 0.08",
                [1.4911, 1.651],
                [1.4909, 1.6512],
            ),
            ("{at_least: 95}", "at least 95", [95.0, 1e6], [94.9, -1.0]),
            ("{at_most: 2}", "at most 2", [2.0, -1.0], [2.1, 1e6]),
            ("{at_least: 1, at_most: 2}", "1 to 2", [1.0, 2.0], [0.9, 2.1]),
        ];
        for (yaml, text, inside, outside) in table {
            let bound = bound(yaml).unwrap();
            assert_eq!(bound.to_string(), text);
            assert_eq!(inside.map(|x| bound.holds(x)), [true, true], "{yaml}");
            assert_eq!(outside.map(|x| bound.holds(x)), [false, false], "{yaml}");
        }
    }

    #[test]
    fn a_bound_of_another_form_is_refused() {
        for yaml in ["{}", "{value: 1}", "{within: 1}", "{value: 1, within: 1, at_least: 1}"] {
            assert!(
                bound(yaml).unwrap_err().contains("a bound is `value` and `within`"),
                "{yaml}"
            );
        }
        assert!(
            bound("{at_least: 2, at_most: 1}")
                .unwrap_err()
                .contains("must not be larger")
        );
        assert!(
            bound("{value: -1, within: 1}")
                .unwrap_err()
                .contains("a number of 0 or more")
        );
        assert!(
            bound("{val: 1}")
                .unwrap_err()
                .contains("expected one of value, within, at_least, at_most")
        );
    }

    #[test]
    fn a_number_out_of_range_names_the_range() {
        type Few = Int<1, 9>;
        assert_eq!(serde_saphyr::from_str::<Few>("9").unwrap().get(), 9);
        for yaml in ["0", "10", "-1", "many", "1.5"] {
            let error = serde_saphyr::from_str::<Few>(yaml).unwrap_err().to_string();
            assert!(error.contains("a whole number from 1 to 9"), "{yaml}: {error}");
        }
    }

    #[test]
    fn a_span_needs_its_unit() {
        let spans =
            ["500ms", "5s", "1m 30s", "1h"].map(|yaml| serde_saphyr::from_str::<Span>(yaml).unwrap().as_millis());
        assert_eq!(spans, [500, 5_000, 90_000, 3_600_000]);
        for yaml in ["5", "-5s", "2h", "soon"] {
            let error = serde_saphyr::from_str::<Span>(yaml).unwrap_err().to_string();
            assert!(
                error.contains("with its unit, like 500ms, 5s or 1m 30s"),
                "{yaml}: {error}"
            );
        }
    }
}
