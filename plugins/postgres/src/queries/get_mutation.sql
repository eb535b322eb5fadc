SELECT kind, eligibility_claim, fingerprint, status, response, answers, observed_at
FROM mutations WHERE subject = $1 AND operation = $2 AND key = $3
