"""A classifier that knows the digits 0-5 meets traffic with all ten, and learns when not to answer.

Real data embedded in scikit-learn. `poscod demo` does the same and writes a report.
"""

from collections import Counter

from poscod import POSCOD
from poscod.datasets import load_open_digits

digits = load_open_digits()

# Labeled rows of known digits, and a log of inputs: nobody says which of them are unknown.
model = POSCOD(alpha=0.5, tpr_min=0.9, random_state=0)
model.fit(digits.labeled, digits.y_labeled, X_unlabeled=digits.traffic)
print(f"Unknown digits in the log: about {model.ood_prior_:.0%} (the truth is {digits.traffic_is_ood.mean():.0%}).")

# A label, or -1: not answered. And why not.
print("First ten unknown digits:", model.predict(digits.ood[:10]).tolist())
print("Reasons:", dict(Counter(model.decide(digits.ood).reason.tolist())))

# Fresh rows tell what the rule does; MSP alone is the same model at alpha = 0.
for name, rule in (("poscod", model), ("MSP alone", model.at(alpha=0.0))):
    found = rule.evaluate(digits.test, digits.y_test, digits.ood)
    print(f"{name:<10} accepts {found.tpr.estimate:.1%} of known and {found.fpr.estimate:.1%} of unknown digits.")
